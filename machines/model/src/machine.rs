//! The parts that both checkers' machines share: everything except how a law is run.
//!
//! The crates of loom and shuttle define primitives of the same names, so this is a macro that
//! takes the crate as an argument. Words, lines (the words of one cache line) and page tags are the
//! checker's atomics, with the given orderings. Locks are the checker's mutexes: any waiter may be
//! next, which allows more interleavings than a queued lock does. The time is not an atomic of the
//! checker, so the checker does not switch threads when the time is read.

/// Defines the machine `$Machine` in terms of the crate `$checker`.
macro_rules! checked_machine {
    ($Machine:ident, $checker:ident) => {
        use std::array;
        use std::fmt;
        use std::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};
        use std::sync::atomic::{AtomicU8, AtomicU64};
        use std::sync::{Arc, OnceLock};

        use ::$checker::sync::Mutex;
        use ::$checker::sync::atomic::{AtomicI64, AtomicU8 as ModelU8, AtomicU64 as ModelU64};
        use plimsoll_mm::event::Event;
        use plimsoll_mm::machine::{
            CpuLock, Due, Field, Job, JobState, LINE_WORDS, Line, LocalWord, Lock, Machine, Once,
            Tags, WhenIdle, Word,
        };
        use plimsoll_mm::site::{LockClass, Site, Work};
        use plimsoll_mm::topology::Topology;
        use plimsoll_mm::units::{CpuId, Hz, Nanos, Order, Pages};

        use $crate::jobs::{Deferral, JobTable};
        use $crate::{HZ, MODELLED_TAGS_MAX, fresh_tag};

        /// The handle of one CPU on a machine inside the checker.
        #[derive(Clone)]
        pub struct $Machine {
            shared: Arc<Shared>,
            cpu: CpuId,
        }

        struct Shared {
            topology: Topology,
            now_ns: AtomicU64,
            jobs: Mutex<JobTable>,
            fronts: Fronts,
        }

        impl $Machine {
            /// Creates a machine of `cpus` equal CPUs without fronts (stacks of free pages), and
            /// returns the handle of CPU 0. May be called only while the checker runs a law.
            #[must_use]
            pub fn new(cpus: u32) -> Self {
                Self::with_fronts(cpus, Fronts::Off)
            }

            /// Creates a machine as [`Self::new`] does, but with this kind of fronts.
            #[must_use]
            pub fn with_fronts(cpus: u32, fronts: Fronts) -> Self {
                let (topology, jobs) = (Topology::flat(cpus), Mutex::new(JobTable::new(cpus)));
                let shared = Shared {
                    topology,
                    now_ns: AtomicU64::new(0),
                    jobs,
                    fronts,
                };
                Self {
                    shared: Arc::new(shared),
                    cpu: CpuId(0),
                }
            }

            /// Returns the handle of `cpu` on this machine.
            #[must_use]
            pub fn on(&self, cpu: CpuId) -> Self {
                Self {
                    shared: Arc::clone(&self.shared),
                    cpu,
                }
            }

            /// Sets the time of all CPUs.
            pub fn set_now(&self, now: Nanos) {
                // Relaxed is enough: model threads run one at a time.
                self.shared.now_ns.store(now.0, Relaxed);
            }

            /// The way in which `job` was deferred to `cpu`; `None` if the job is not pending.
            #[must_use]
            pub fn deferral(&self, cpu: CpuId, job: Job) -> Option<Deferral> {
                self.jobs(|jobs| jobs.pending(cpu, job))
            }

            /// Calls `handler` once for each pending job of this handle's CPU, as if the job were
            /// due. Returns the number of jobs that ran.
            pub fn run_pending(&self, handler: impl Fn(&Self, Job)) -> u32 {
                let mut runs = 0;
                for job in Job::ALL {
                    if self.jobs(|jobs| jobs.begin(self.cpu, job)) {
                        handler(self, job);
                        self.jobs(|jobs| jobs.end(self.cpu, job));
                        runs += 1;
                    }
                }
                runs
            }

            fn jobs<R>(&self, f: impl FnOnce(&mut JobTable) -> R) -> R {
                f(&mut self
                    .shared
                    .jobs
                    .lock()
                    .expect("no panic happens inside the table"))
            }
        }

        impl fmt::Debug for $Machine {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($Machine))
                    .field("cpu", &self.cpu)
                    .finish_non_exhaustive()
            }
        }

        impl Machine for $Machine {
            type Word = ModelWord;
            type LocalWord = ModelWord;
            type Lock<T> = ModelLock<T>;
            type CpuLock<T> = ModelLock<T>;
            type Tags = ModelTags;
            type Line = ModelLine;
            type Once<T> = ModelOnce<T>;
            type Field = ModelField;
            type RwLock<T> = ModelRwLock<T>;
            type Front = ModelFront;

            fn topology(&self) -> &Topology {
                &self.shared.topology
            }

            fn this_cpu(&self) -> CpuId {
                self.cpu
            }

            fn now(&self) -> Nanos {
                // Relaxed is enough: model threads run one at a time.
                Nanos(self.shared.now_ns.load(Relaxed))
            }

            fn hz(&self) -> Hz {
                HZ
            }

            fn word(&self, value: i64) -> ModelWord {
                ModelWord(AtomicI64::new(value))
            }

            fn local_word(&self, _cpu: CpuId, value: i64) -> ModelWord {
                ModelWord(AtomicI64::new(value))
            }

            fn lock<T>(&self, _class: LockClass, _home: CpuId, value: T) -> ModelLock<T> {
                ModelLock(Mutex::new(value))
            }

            fn cpu_lock<T>(&self, _class: LockClass, _cpu: CpuId, value: T) -> ModelLock<T> {
                ModelLock(Mutex::new(value))
            }

            fn rw_lock<T>(&self, _class: LockClass, _home: CpuId, value: T) -> ModelRwLock<T> {
                ModelRwLock::new(value)
            }

            fn tags(&self, pages: Pages) -> ModelTags {
                ModelTags::new(pages)
            }

            fn line(&self) -> ModelLine {
                ModelLine(array::from_fn(|_| AtomicI64::new(0)))
            }

            fn once<T>(&self) -> ModelOnce<T> {
                ModelOnce::new()
            }

            fn field(&self, value: u64) -> ModelField {
                ModelField(ModelU64::new(value))
            }

            fn make_fronts(&self, _order: Order) -> impl Iterator<Item = ModelFront> {
                let kind = self.shared.fronts;
                (0..).map(move |cpu| ModelFront::new(CpuId(cpu), kind))
            }

            fn spend(&self, _work: Work, _n: u32) {}

            fn pinned<R>(&self, f: impl FnOnce() -> R) -> R {
                f()
            }

            fn defer(&self, cpu: CpuId, job: Job, due: Due, idle: WhenIdle) {
                self.jobs(|jobs| jobs.set(cpu, job, Some(Deferral { due, idle })));
            }

            fn cancel(&self, cpu: CpuId, job: Job) {
                self.jobs(|jobs| jobs.set(cpu, job, None));
            }

            /// If a running job is deferred again, its state is pending.
            fn job_state(&self, cpu: CpuId, job: Job) -> JobState {
                self.jobs(|jobs| jobs.state(cpu, job))
            }

            fn emit(&self, _event: Event) {}
        }

        /// An atomic integer of the model.
        #[derive(Debug)]
        pub struct ModelWord(AtomicI64);

        impl Word<$Machine> for ModelWord {
            fn load(&self, _machine: &$Machine, order: Ordering) -> i64 {
                self.0.load(order)
            }

            fn store(&self, _machine: &$Machine, value: i64, order: Ordering) {
                self.0.store(value, order);
            }

            fn add(&self, _machine: &$Machine, delta: i64, order: Ordering) -> i64 {
                self.0.fetch_add(delta, order).wrapping_add(delta)
            }

            fn swap(&self, _machine: &$Machine, value: i64, order: Ordering) -> i64 {
                self.0.swap(value, order)
            }

            fn compare_exchange(
                &self,
                _machine: &$Machine,
                old: i64,
                new: i64,
                order: Ordering,
            ) -> Result<i64, i64> {
                self.0.compare_exchange(old, new, order, Relaxed)
            }
        }

        /// Atomic integers of the model. The checker can switch threads at each access to one of
        /// them.
        #[derive(Debug)]
        pub struct ModelLine([AtomicI64; LINE_WORDS]);

        impl Line<$Machine> for ModelLine {
            fn load(&self, _machine: &$Machine, word: usize, order: Ordering) -> i64 {
                self.0[word].load(order)
            }

            fn store(&self, _machine: &$Machine, word: usize, value: i64, order: Ordering) {
                self.0[word].store(value, order);
            }

            fn add(&self, _machine: &$Machine, word: usize, delta: i64, order: Ordering) -> i64 {
                self.0[word].fetch_add(delta, order).wrapping_add(delta)
            }

            fn compare_exchange(
                &self,
                _machine: &$Machine,
                word: usize,
                old: i64,
                new: i64,
                order: Ordering,
            ) -> Result<i64, i64> {
                self.0[word].compare_exchange(old, new, order, Relaxed)
            }
        }

        impl LocalWord<$Machine> for ModelWord {
            fn add(&self, _machine: &$Machine, delta: i64) -> i64 {
                self.0.fetch_add(delta, Relaxed).wrapping_add(delta)
            }

            fn set(&self, _machine: &$Machine, value: i64) {
                self.0.store(value, Relaxed);
            }

            fn take(&self, _machine: &$Machine) -> i64 {
                self.0.swap(0, Relaxed)
            }

            fn read(&self, _machine: &$Machine) -> i64 {
                self.0.load(Relaxed)
            }
        }

        /// A plain integer of the model. The checker can switch threads at each access.
        #[derive(Debug)]
        pub struct ModelField(ModelU64);

        impl Field for ModelField {
            fn get(&self) -> u64 {
                self.0.load(Acquire)
            }

            fn set(&self, value: u64) {
                self.0.store(value, Release);
            }
        }

        /// A value that is set once. The flag that says whether it is set is an atomic of the
        /// checker, so a reader may run before or after the store.
        #[derive(Debug)]
        pub struct ModelOnce<T> {
            value: OnceLock<T>,
            there: AtomicI64,
        }

        impl<T> ModelOnce<T> {
            fn new() -> Self {
                Self {
                    value: OnceLock::new(),
                    there: AtomicI64::new(0),
                }
            }
        }

        impl<T> Once<T> for ModelOnce<T> {
            fn of(value: T) -> Self {
                Self {
                    value: value.into(),
                    there: AtomicI64::new(1),
                }
            }

            fn get(&self) -> Option<&T> {
                // Acquire pairs with the Release in `set`, so a reader that sees the flag also sees
                // the value.
                if self.there.load(Acquire) == 0 {
                    return None;
                }
                self.value.get()
            }

            fn set(&self, value: T) -> Result<(), T> {
                let outcome = self.value.set(value);
                // Set the flag even if `value` was refused: another CPU has then set the value, but
                // may not have set the flag yet.
                self.there.store(1, Release);
                outcome
            }

            fn into_inner(self) -> Option<T> {
                self.value.into_inner()
            }
        }

        /// A mutex of the model.
        #[derive(Debug)]
        pub struct ModelLock<T>(Mutex<T>);

        impl<T> ModelLock<T> {
            fn wait<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
                f(&mut self.0.lock().expect("a panic ends the whole model"))
            }

            fn attempt<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
                self.0.try_lock().ok().map(|mut value| f(&mut value))
            }
        }

        impl<T> Lock<$Machine, T> for ModelLock<T> {
            fn with<R>(&self, _: &$Machine, _: Site, f: impl FnOnce(&mut T) -> R) -> R {
                self.wait(f)
            }

            fn try_with<R>(&self, _: &$Machine, _: Site, f: impl FnOnce(&mut T) -> R) -> Option<R> {
                self.attempt(f)
            }
        }

        impl<T> CpuLock<$Machine, T> for ModelLock<T> {
            fn try_local<R>(
                &self,
                _: &$Machine,
                _: Site,
                f: impl FnOnce(&mut T) -> R,
            ) -> Option<R> {
                self.attempt(f)
            }

            fn with<R>(&self, _: &$Machine, _: Site, f: impl FnOnce(&mut T) -> R) -> R {
                self.wait(f)
            }
        }

        /// The tags of a zone, one byte for each page: atomics of the checker if the zone is small,
        /// atomics of `std` if not.
        #[derive(Debug)]
        pub enum ModelTags {
            /// The tags are atomics of the checker, which can switch threads at each access.
            Modelled(Vec<ModelU8>),
            /// The tags are atomics of `std`: the checker never switches threads at an access.
            Plain(Vec<AtomicU8>),
        }

        impl ModelTags {
            fn new(pages: Pages) -> Self {
                let fresh = (0..pages.0).map(|page| fresh_tag(Self::FRESH_HEAD, page));
                if pages.0 <= MODELLED_TAGS_MAX {
                    Self::Modelled(fresh.map(ModelU8::new).collect())
                } else {
                    Self::Plain(fresh.map(AtomicU8::new).collect())
                }
            }
        }

        impl Tags for ModelTags {
            fn get(&self, page: u32) -> u8 {
                match self {
                    Self::Modelled(tags) => tags[page as usize].load(Relaxed),
                    Self::Plain(tags) => tags[page as usize].load(Relaxed),
                }
            }

            fn set(&self, page: u32, tag: u8) {
                match self {
                    Self::Modelled(tags) => tags[page as usize].store(tag, Relaxed),
                    Self::Plain(tags) => tags[page as usize].store(tag, Relaxed),
                }
            }

            fn replace(&self, page: u32, old: u8, new: u8) -> Result<(), u8> {
                let page = page as usize;
                let replaced = match self {
                    Self::Modelled(tags) => tags[page].compare_exchange(old, new, Relaxed, Relaxed),
                    Self::Plain(tags) => tags[page].compare_exchange(old, new, Relaxed, Relaxed),
                };
                replaced.map(|_old| ())
            }
        }
    };
}

pub(crate) use checked_machine;
