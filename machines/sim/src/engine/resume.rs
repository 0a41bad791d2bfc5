//! Where the host finds a suspended CPU, so that the engine can fetch that memory before it resumes
//! the CPU.
//!
//! Each resumption of a CPU reads its task and the end of the task's stack. On a machine with
//! hundreds of CPUs these lines are in no fast cache of the host any more, and waiting for them
//! takes longer than the resumption itself. The addresses are only hints: a wrong one costs time,
//! but changes nothing.

use std::cell::Cell;
use std::ptr;

use crate::tasks::coroutine::prefetch;

/// The bytes of a cache line of the host.
const LINE: usize = 64;
/// The lines of a task that a resumption reads.
const TASK_LINES: usize = 2;
/// The lines of a stack that are fetched: those around the frame in which the task was suspended.
/// The switch of stacks has saved its registers below this frame.
const STACK_LINES: [isize; 4] = [-2, -1, 0, 1];

/// The task that a CPU ran when it was suspended last, and an address near the end of its stack.
pub(crate) struct Resume {
    task: Cell<*const u8>,
    stack: Cell<*const u8>,
}

impl Default for Resume {
    fn default() -> Self {
        Self {
            task: Cell::new(ptr::null()),
            stack: Cell::new(ptr::null()),
        }
    }
}

impl Resume {
    /// Notes that `task`, on whose stack this is called, is about to be suspended.
    #[inline(always)]
    pub(crate) fn note<T>(&self, task: &T) {
        let here = 0;
        self.stack.set(&raw const here);
        self.task.set(ptr::from_ref(task).cast());
    }

    /// Lets the host fetch what was noted last.
    #[inline(always)]
    pub(crate) fn fetch(&self) {
        let (task, stack) = (self.task.get(), self.stack.get());
        for line in 0..TASK_LINES {
            prefetch(task.wrapping_add(line * LINE));
        }
        for line in STACK_LINES {
            prefetch(stack.wrapping_offset(line * LINE.cast_signed()));
        }
    }
}
