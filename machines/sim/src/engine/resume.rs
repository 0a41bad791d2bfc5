//! Prefetches the host's memory that a resumption of a simulated CPU reads: the CPU's task, and the
//! end of the task's stack.
//!
//! On a machine with hundreds of CPUs, the host's fast caches have lost this memory since the CPU
//! was suspended. Waiting for the memory would take longer than the resumption itself. The
//! addresses are only hints: a wrong address costs time, but changes nothing.

use std::cell::Cell;
use std::ptr;

use crate::tasks::coroutine::prefetch;

/// The size of a cache line of the host, in bytes.
const LINE: usize = 64;
/// The number of cache lines of a task that a resumption reads.
const TASK_LINES: usize = 2;
/// The cache lines of a stack that are fetched. They are counted from the line of the frame in
/// which the task was suspended. The code that switches stacks has saved the registers below this
/// frame.
const STACK_LINES: [isize; 4] = [-2, -1, 0, 1];

/// The task that a CPU ran when the CPU was last suspended, and an address near the end of the
/// task's stack.
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
    /// Records `task`, which is about to be suspended, and an address on its stack. The caller runs
    /// on this stack.
    #[inline(always)]
    pub(crate) fn note<T>(&self, task: &T) {
        let here = 0;
        self.stack.set(&raw const here);
        self.task.set(ptr::from_ref(task).cast());
    }

    /// Prefetches the task and the stack that [`Resume::note`] recorded last.
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
