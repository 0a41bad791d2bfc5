//! The front (a CPU's stack of free pages) for both checkers' machines. It is a macro, because loom
//! and shuttle define primitives of the same names.
//!
//! A front is a stack behind a mutex of the checker. A call by the CPU of the front is refused while
//! another CPU empties the front, and never waits. So the checker tries what the manager does around
//! the calls, but not what happens inside a call: the tests of `host_fronts` check that.

/// How the fronts (CPUs' stacks of free pages) of a machine inside a checker free a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fronts {
    /// The machine has no fronts.
    Off,
    /// A free changes the tag of the page in one atomic step. If two CPUs free the same page at the
    /// same time, one of the frees is refused.
    Exchanging,
    /// A free loads the tag of the page and then stores it. So two CPUs that free the same page at
    /// the same time can both succeed.
    Storing,
}

/// Defines the front of `$Machine` in terms of the crate `$checker`.
macro_rules! checked_front {
    ($Machine:ident, $checker:ident) => {
        use std::sync::atomic::AtomicBool;

        use ::$checker::sync::MutexGuard;
        use plimsoll_mm::machine::{Freed, Front};

        use $crate::front::Fronts;

        /// A stack of free blocks of the model.
        #[derive(Debug)]
        pub struct ModelFront {
            cpu: CpuId,
            kind: Fronts,
            blocks: Mutex<Vec<u32>>,
            len: AtomicI64,
            /// The checker never switches threads when this limit is read or changed.
            limit: AtomicU32,
            was_used: AtomicBool,
        }

        impl ModelFront {
            fn new(cpu: CpuId, kind: Fronts) -> Self {
                Self {
                    cpu,
                    kind,
                    blocks: Mutex::new(Vec::new()),
                    len: AtomicI64::new(0),
                    limit: AtomicU32::new(0),
                    was_used: AtomicBool::new(false),
                }
            }

            /// The blocks, if the CPU of `machine` can use the stack at the moment.
            fn mine(&self, machine: &$Machine) -> Option<MutexGuard<'_, Vec<u32>>> {
                let may = self.kind != Fronts::Off && machine.cpu == self.cpu;
                may.then(|| self.blocks.try_lock().ok())?
            }

            /// Notes that the stack was changed to `blocks`.
            fn note(&self, blocks: &[u32]) {
                let len = i64::try_from(blocks.len()).expect("few blocks");
                self.len.store(len, Relaxed);
                self.was_used.store(true, Relaxed);
            }

            fn push_in(&self, blocks: &mut Vec<u32>, page: u32) -> bool {
                let has_room = blocks.len() < self.limit.load(Relaxed) as usize;
                if has_room {
                    blocks.push(page);
                    self.note(blocks);
                }
                has_room
            }
        }

        impl Front<$Machine> for ModelFront {
            const CAPACITY: u32 = 64;

            fn pop(&self, machine: &$Machine) -> Option<u32> {
                let mut blocks = self.mine(machine)?;
                let page = blocks.pop()?;
                self.note(&blocks);
                Some(page)
            }

            fn free(
                &self,
                machine: &$Machine,
                tags: &ModelTags,
                page: u32,
                old: u8,
                new: u8,
            ) -> Freed {
                let Some(mut blocks) = self.mine(machine) else {
                    return Freed::Unchanged;
                };
                let is_changed = if self.kind == Fronts::Exchanging {
                    tags.replace(page, old, new).is_ok()
                } else {
                    let is_old = tags.get(page) == old;
                    if is_old {
                        tags.set(page, new);
                    }
                    is_old
                };
                if !is_changed {
                    Freed::Unchanged
                } else if self.push_in(&mut blocks, page) {
                    Freed::Pushed
                } else {
                    Freed::Tagged
                }
            }

            fn push(&self, machine: &$Machine, page: u32) -> bool {
                let blocks = self.mine(machine);
                blocks.is_some_and(|mut blocks| self.push_in(&mut blocks, page))
            }

            fn admits(&self, machine: &$Machine) -> bool {
                self.mine(machine).is_some()
            }

            fn empty(&self, _machine: &$Machine, mut f: impl FnMut(&[u32])) {
                let mut blocks = self.blocks.lock().expect("a panic ends the whole model");
                let mut all = std::mem::take(&mut *blocks);
                self.note(&blocks);
                all.reverse();
                f(&all);
            }

            fn blocks(&self) -> u32 {
                if self.kind == Fronts::Off {
                    return 0;
                }
                u32::try_from(self.len.load(Relaxed)).expect("few blocks")
            }

            fn is_idle(&self) -> bool {
                !self.was_used.swap(false, Relaxed)
            }

            fn limit(&self) -> u32 {
                self.limit.load(Relaxed)
            }

            fn set_limit(&self, blocks: u32) {
                if self.kind != Fronts::Off {
                    self.limit.store(blocks, Relaxed);
                }
            }
        }
    };
}

pub(crate) use checked_front;
