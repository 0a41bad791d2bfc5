//! The course of a run: what happened at which virtual time, for the charts of an HTML page.
//!
//! Each case runs on one thread. `during` opens a slot for this thread, and `attach` attaches every
//! simulated machine that the case makes to the slot. An attached machine has a `Watcher`, which
//! sorts events and waits into bins as they happen. So the memory of the watcher does not grow with
//! the length of the run. If no slot is open, `attach` does nothing, and the machine has no
//! observer.
//!
//! A watcher reads only values whose reading takes no virtual time, so a watched run has the same
//! hash as an unwatched run.

mod bins;
mod collect;
mod course;
mod encode;
mod frames;
mod spans;
mod waits;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use plimsoll_mm::Manager;
use plimsoll_mm::machine::Job;
use plimsoll_sim::{Sim, Stats};

use self::collect::Collector;
pub use self::course::{
    Between, Course, Frame, Line, LongWait, Map, Mark, Pair, SiteWaits, Span, Unit,
};

thread_local! {
    /// One `Watcher` for each machine that the run on this thread has made. `None` if no run on
    /// this thread is watched.
    static SLOT: RefCell<Option<Vec<Watcher>>> = const { RefCell::new(None) };
}

/// The courses (what happened, over time) of the watched runs of a command. Clones share the
/// courses.
#[derive(Clone, Debug, Default)]
pub struct Courses(Arc<Mutex<Vec<Course>>>);

impl Courses {
    /// Calls `run` and keeps the course of the machine that `run` makes. `name` fills in the names
    /// in this course. If `run` makes several machines, only the course with the most events is
    /// kept. If `run` makes no machine, nothing is kept.
    pub fn of<T>(&self, name: impl FnOnce(&mut Course), run: impl FnOnce() -> T) -> T {
        let (result, course) = during(run);
        if let Some(mut course) = course {
            name(&mut course);
            self.lock().push(course);
        }
        result
    }

    /// Removes and returns the courses (what happened in each run) that have been kept, sorted by
    /// experiment and machine. The courses of one machine are in the order in which their runs
    /// ended.
    #[must_use]
    pub fn take(&self) -> Vec<Course> {
        let mut courses = std::mem::take(&mut *self.lock());
        courses.sort_by(|one, other| {
            (&one.experiment, &one.machine).cmp(&(&other.experiment, &other.machine))
        });
        courses
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Course>> {
        self.0.lock().expect("no holder of this lock panics")
    }
}

/// Calls `run` on this thread and watches the machines that it makes.
fn during<T>(run: impl FnOnce() -> T) -> (T, Option<Course>) {
    SLOT.with(|slot| slot.replace(Some(Vec::new())));
    let result = run();
    let watchers = SLOT.with(RefCell::take).unwrap_or_default();
    let collectors = watchers.into_iter().map(|watcher| watcher.0.take());
    let busiest = collectors
        .flatten()
        .max_by_key(|collector| collector.events());
    (result, busiest.map(Collector::finish))
}

/// Watches one machine.
#[derive(Clone)]
pub(crate) struct Watcher(Rc<RefCell<Option<Collector>>>);

/// Watches `sim` from now on, if the run on this thread is watched.
pub(crate) fn attach(sim: &Sim) -> Option<Watcher> {
    SLOT.with(|slot| {
        let mut slot = slot.borrow_mut();
        let watchers = slot.as_mut()?;
        let watcher = Watcher(Rc::new(RefCell::new(Some(Collector::new(sim)))));
        watchers.push(watcher.clone());
        let of_events = watcher.clone();
        sim.observe(move |sim, cpu, at, event| {
            of_events.with(|collector| collector.event(sim, cpu, at.0, event));
        });
        let of_waits = watcher.clone();
        sim.observe_waits(move |wait| of_waits.with(|collector| collector.waited(wait)));
        Some(watcher)
    })
}

impl Watcher {
    /// Notes that a kernel job begins on the current CPU.
    pub(crate) fn job_starts(&self, sim: &Sim, job: Job) {
        self.with(|collector| collector.job_starts(sim, job));
    }

    /// Notes that the kernel job that began last on the current CPU ends.
    pub(crate) fn job_ends(&self, sim: &Sim, job: Job) {
        self.with(|collector| collector.job_ends(sim, job));
    }

    /// From now on, also reads the lengths of the page lists of `mm`.
    pub(crate) fn read_lists(&self, mm: &Rc<Manager<Sim>>) {
        let mm = Rc::clone(mm);
        self.with(|collector| collector.read_lists(mm));
    }

    /// Notes the value `said` of a resident-page counter, and the true number `truth` of pages.
    pub(crate) fn counted(&self, sim: &Sim, said: i64, truth: i64) {
        self.with(|collector| collector.counted(sim, said, truth));
    }

    /// Notes that the run has ended with the statistics `stats`.
    pub(crate) fn ended(&self, stats: &Stats) {
        self.with(|collector| collector.ended(stats));
    }

    /// Forgets everything that has happened so far, such as the work of preparing memory.
    pub(crate) fn forget(&self, sim: &Sim) {
        self.with(|collector| collector.forget(sim));
    }

    fn with(&self, f: impl FnOnce(&mut Collector)) {
        // If the machine outlives the watched run, there is no collector any more.
        if let Some(collector) = &mut *self.0.borrow_mut() {
            f(collector);
        }
    }
}
