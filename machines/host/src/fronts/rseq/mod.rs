//! Restartable sequences (Linux: `rseq`): a few instructions that the kernel starts again if the
//! thread is preempted, migrated or interrupted by a signal between them.
//!
//! Each thread has a registered area. There the kernel keeps the number of the CPU, and the thread
//! notes the sequence that it runs. glibc registers the area from version 2.35 on, and says where
//! it is. Otherwise this module registers an area of its own (`own.rs`).
//!
//! `ops` has the sequences themselves, in assembly. Another thread stops the sequences on a CPU by
//! [`abort_on`].

#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
mod ops;
mod own;

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

use super::registrar::Registrar;
use super::stack::Stack;
pub(super) use ops::{add, free, pop, push, push_run};
use rustix::thread::{MembarrierCommand, membarrier, membarrier_query};

/// The area that a thread shares with the kernel (Linux: `struct rseq`).
#[repr(C, align(32))]
pub(super) struct Area {
    cpu_id_start: AtomicU32,
    /// The number of the CPU on which the thread runs. While the area is not registered with the
    /// kernel, this is not the number of any CPU.
    pub(super) cpu_id: AtomicU32,
    /// The address of the description of the restartable sequence that the thread runs.
    pub(super) rseq_cs: AtomicU64,
    flags: AtomicU32,
}

/// The value of `cpu_id` in an area that is not registered (Linux: `RSEQ_CPU_ID_UNINITIALIZED`).
const NO_CPU: u32 = u32::MAX;
/// Every CPU number is below this bound.
const CPUS_MAX: u32 = 1 << 20;

/// The area of threads that have no registered area. Its `cpu_id` is not the number of any CPU, so
/// a restartable sequence that uses this area always gives up.
static NONE: Area = Area::new();

thread_local! {
    static MINE: Cell<&'static Area> = const { Cell::new(&NONE) };
}

/// The calling thread's area. If the thread is not [set up](set_up), this is an area with which
/// every restartable sequence gives up.
#[inline(always)]
pub(super) fn mine() -> &'static Area {
    MINE.get()
}

impl Area {
    /// Makes an area (Linux: `struct rseq`) that is not registered with the kernel.
    const fn new() -> Self {
        Self {
            cpu_id_start: AtomicU32::new(0),
            cpu_id: AtomicU32::new(NO_CPU),
            rseq_cs: AtomicU64::new(0),
            flags: AtomicU32::new(0),
        }
    }

    /// The CPU on which the thread runs, or `None` if this area (Linux: `struct rseq`) is not
    /// registered.
    #[inline(always)]
    pub(super) fn cpu(&self) -> Option<u32> {
        // Relaxed is enough: the kernel changes the number only while the thread does not run.
        let cpu = self.cpu_id.load(Relaxed);
        (cpu < CPUS_MAX).then_some(cpu)
    }
}

/// How a thread finds its area.
#[derive(Clone, Copy, Debug)]
enum Registration {
    /// glibc has registered an area at this distance from the thread pointer.
    Libc { offset: isize },
    /// This module registers an area for each thread.
    Own,
}

/// An area is memory that a thread shares with the kernel for restartable sequences. Returns how
/// threads of this process get their areas; `None` if the kernel or this process cannot use such
/// sequences.
fn registration() -> Option<Registration> {
    static FOUND: OnceLock<Option<Registration>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let known = membarrier_query();
        let can_abort = known.contains_command(MembarrierCommand::PrivateExpeditedRseq)
            && membarrier(MembarrierCommand::RegisterPrivateExpeditedRseq).is_ok()
            && own::abort_sequences_on(0);
        if !can_abort {
            return None;
        }
        let found = match own::libc_offset() {
            Some(offset) => Registration::Libc { offset },
            None => Registration::Own,
        };
        let area = own::area_of_this_thread(found)?;
        area.cpu().map(|_| found)
    })
}

/// Returns whether this process can use restartable sequences.
pub(super) fn is_available() -> bool {
    registration().is_some()
}

/// The library that registers the areas of this process's threads with the kernel. Returns `None` if
/// this process cannot use restartable sequences.
pub(super) fn registrar() -> Option<Registrar> {
    Some(match registration()? {
        Registration::Libc { .. } => Registrar::Libc,
        Registration::Own => Registrar::Plimsoll,
    })
}

/// Makes the calling thread able to run restartable sequences. Returns its area; `None` if this
/// process cannot use sequences or the area cannot be registered.
#[cold]
pub(super) fn set_up() -> Option<&'static Area> {
    if let Some(area) = Some(mine()).filter(|area| area.cpu().is_some()) {
        return Some(area);
    }
    let area = own::area_of_this_thread(registration()?)?;
    area.cpu()?;
    MINE.set(area);
    Some(area)
}

/// Makes the calling thread unable to run restartable sequences until it calls [`set_up`]. Is safe
/// in a signal handler.
pub(crate) fn leave() {
    MINE.set(&NONE);
}

/// Pops up to `pages.len()` pages if the thread runs on the stack's *home*, the CPU whose threads may
/// use the stack. The page that was pushed last comes first in `pages`. Returns the number of pages.
pub(super) fn pop_run(area: &Area, stack: &Stack, pages: &mut [u32]) -> usize {
    let commit = |before, after| ops::commit(area, stack, before, after);
    stack.pop_run_on(|| area.cpu(), pages, commit)
}

/// Makes every restartable sequence that another thread runs on `cpu` at the moment start again,
/// and acts as a full barrier on that CPU.
#[cold]
pub(super) fn abort_on(cpu: u32) {
    let aborted = own::abort_sequences_on(cpu);
    assert!(aborted, "the process has registered for `membarrier`");
}

#[cfg(test)]
mod stops;

#[cfg(test)]
#[expect(unsafe_code, reason = "a test reads the description of a sequence")]
mod tests {
    use std::sync::atomic::{AtomicI64, AtomicU8};

    use plimsoll_mm::machine::Freed;

    use super::*;
    use crate::fronts::stack::NOBODY;

    /// Returns an area that the kernel does not know. So the kernel never stops a restartable
    /// sequence that uses this area.
    pub(super) fn area_on(cpu: u32) -> Area {
        let area = Area::new();
        area.cpu_id.store(cpu, Relaxed);
        area
    }

    #[test]
    fn sequences_push_and_pop_at_home_only() {
        let (here, elsewhere) = (&area_on(3), &area_on(4));
        let stack = &Stack::new();
        stack.limit.store(2, Relaxed);
        stack.home.store(3, Relaxed);
        assert_eq!(pop(here, stack), None, "it is empty");
        assert!(push(here, stack, 70) && push(here, stack, 80));
        assert!(!push(here, stack, 90), "it is full");
        assert_eq!((stack.len(), pop(elsewhere, stack)), (2, None));
        assert!(!push(elsewhere, stack, 90));
        assert_eq!(pop(here, stack), Some(80));
        assert_eq!(pop(here, stack), Some(70));
        assert_eq!(pop(here, stack), None);
        stack.home.store(NOBODY, Relaxed);
        assert!(!push(here, stack, 70), "nobody may use it");
        assert!(
            !push(&NONE, stack, 70),
            "a thread without an area least of all"
        );
        let operations = stack.state.load(Relaxed) >> 16;
        assert_eq!(operations, 4, "two pushes and two pops");
    }

    #[test]
    fn a_run_is_pushed_and_popped_whole_and_at_home_only() {
        let (here, elsewhere) = (&area_on(3), &area_on(4));
        let stack = &Stack::new();
        stack.limit.store(5, Relaxed);
        stack.home.store(3, Relaxed);
        assert!(push_run(here, stack, &[]), "nothing to push");
        assert!(push_run(here, stack, &[10, 20, 30, 40]));
        assert!(!push_run(here, stack, &[50, 60]), "there is room for one");
        assert!(!push_run(elsewhere, stack, &[50]) && !push_run(&NONE, stack, &[50]));
        assert!(push_run(here, stack, &[50]));
        let mut run = [0; 3];
        assert_eq!(pop_run(elsewhere, stack, &mut run), 0);
        assert_eq!((pop_run(here, stack, &mut run), run), (3, [50, 40, 30]));
        assert_eq!(pop(here, stack), Some(20));
        let rest = pop_run(here, stack, &mut run);
        assert_eq!((rest, run, stack.len()), (1, [10, 40, 30], 0));
        assert_eq!(pop_run(here, stack, &mut run), 0, "it is empty");
        let operations = stack.state.load(Relaxed) >> 16;
        assert_eq!(
            operations, 5,
            "two runs pushed, two popped, one page popped"
        );
        assert!(!ops::commit(here, stack, 7, 8), "the state is another one");
    }

    #[test]
    fn a_run_is_popped_only_from_the_same_state_at_home() {
        let (here, elsewhere) = (&area_on(3), &area_on(4));
        let stack = &Stack::new();
        stack.home.store(3, Relaxed);
        stack.limit.store(2, Relaxed);
        assert!(push_run(here, stack, &[10, 20]));
        let state = stack.state.load(Relaxed);
        assert!(!ops::commit(elsewhere, stack, state, state + 1));
        assert!(!ops::commit(&NONE, stack, state, state + 1));
        let later = state + (1 << 40);
        assert!(!ops::commit(here, stack, later, later), "many pushes later");
        assert_eq!(stack.state.load(Relaxed), state);
        assert!(ops::commit(here, stack, state, state + 1));
        assert_eq!(stack.state.load(Relaxed), state + 1);
    }

    #[test]
    fn a_stack_above_its_limit_gets_no_run() {
        let (here, stack) = (&area_on(0), &Stack::new());
        stack.home.store(0, Relaxed);
        stack.limit.store(3, Relaxed);
        assert!(push_run(here, stack, &[10, 20, 30]));
        stack.limit.store(1, Relaxed);
        assert!(!push_run(here, stack, &[40]));
        assert_eq!((stack.len(), pop(here, stack)), (3, Some(30)));
    }

    /// A sequence finds the place of a page from the number of pages, which has 16 bits.
    #[test]
    fn a_stack_with_all_its_pages_is_popped_in_order() {
        let (here, stack) = (&area_on(0), &Stack::new());
        stack.home.store(0, Relaxed);
        let limit = u32::try_from(stack.pages.len()).expect("few pages");
        stack.limit.store(limit, Relaxed);
        for page in 0..limit - 2 {
            assert!(push(here, stack, page));
        }
        assert!(push_run(here, stack, &[limit - 2, limit - 1]));
        assert!(!push(here, stack, limit) && !push_run(here, stack, &[limit]));
        for page in (0..limit).rev() {
            assert_eq!(pop(here, stack), Some(page));
        }
        assert_eq!(pop(here, stack), None);
        let tag = &AtomicU8::new(7);
        for page in 0..limit {
            tag.store(7, Relaxed);
            assert_eq!(free(here, stack, page, tag, [7, 9]), Freed::Pushed);
        }
        assert_eq!((stack.len(), pop(here, stack)), (limit, Some(limit - 1)));
    }

    /// The load of the home is an acquire, so a thread that finds itself at home sees the pages that
    /// earlier users have pushed. On x86, every load is one.
    #[test]
    #[cfg(target_arch = "aarch64")]
    fn a_sequence_acquires_the_home() {
        let (area, stack, tag) = (&area_on(0), &Stack::new(), &AtomicU8::new(7));
        stack.home.store(0, Relaxed);
        stack.limit.store(2, Relaxed);
        let uses: [&mut dyn FnMut() -> bool; 7] = [
            &mut || push(area, stack, 5),
            &mut || pop(area, stack).is_some(),
            &mut || push_run(area, stack, &[5]),
            &mut || pop_run(area, stack, &mut [0]) == 1,
            &mut || add(area, &stack.home, &AtomicI64::new(0), 1).is_some(),
            &mut || free(area, stack, 5, tag, [7, 9]) == Freed::Pushed,
            // The stack is full, so only the tag is changed.
            &mut || push(area, stack, 6) && free(area, stack, 7, tag, [9, 7]) == Freed::Tagged,
        ];
        for (nth, uses) in uses.into_iter().enumerate() {
            assert!(uses());
            let [first, ..] = description(area);
            // SAFETY: these four bytes are the second instruction of the sequence.
            let second = unsafe { *std::ptr::with_exposed_provenance::<u32>(first + 4) };
            // The instruction is an `ldar` of 32 bits (`0x88dffc00`) with any registers.
            assert_eq!(second & !0x3ff, 0x88df_fc00, "{nth}: {second:#x}");
        }
    }

    /// The kernel moves a thread to another CPU after the thread has copied the pages of a run. The
    /// thread pops nothing, and does not wait until it is back on the first CPU.
    #[test]
    fn a_thread_that_is_moved_pops_no_run() {
        let (area, stack) = (&area_on(3), &Stack::new());
        stack.home.store(3, Relaxed);
        stack.limit.store(1, Relaxed);
        assert!(push(area, stack, 10));
        let tries = AtomicU32::new(0);
        let commit = |before, after| {
            assert_eq!(tries.fetch_add(1, Relaxed), 0, "it gives up");
            area.cpu_id.store(4, Relaxed);
            ops::commit(area, stack, before, after)
        };
        assert_eq!(stack.pop_run_on(|| area.cpu(), &mut [0], commit), 0);
        assert_eq!(stack.len(), 1);
    }

    /// The store of a stack's new state is the last instruction of a sequence. If it came after the
    /// end of the sequence, the kernel would let a thread that it has stopped store an old state.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_sequence_ends_with_the_store_of_the_state() {
        let (area, stack) = (&area_on(0), &Stack::new());
        stack.home.store(0, Relaxed);
        stack.limit.store(2, Relaxed);
        let (page, run, tag) = (&mut [0], &[5], &AtomicU8::new(7));
        let uses: [&mut dyn FnMut() -> bool; 5] = [
            &mut || push(area, stack, 5),
            &mut || pop(area, stack).is_some(),
            &mut || push_run(area, stack, run),
            &mut || pop_run(area, stack, page) == 1,
            &mut || free(area, stack, 5, tag, [7, 9]) == Freed::Pushed,
        ];
        for (nth, uses) in uses.into_iter().enumerate() {
            assert!(uses());
            let [_, end, _] = description(area);
            // SAFETY: these four bytes are part of the code of the sequence.
            let last = unsafe { *std::ptr::with_exposed_provenance::<[u8; 4]>(end - 4) };
            // The instruction is a `mov` (0x89) to the address of the stack plus 8.
            assert!(
                last[..2].contains(&0x89) && last[3] == 8,
                "{nth}: {last:x?}"
            );
        }
    }

    #[test]
    fn a_sequence_frees_a_page_whose_tag_is_right() {
        let (here, elsewhere) = (&area_on(0), &area_on(1));
        let (stack, tag) = (&Stack::new(), &AtomicU8::new(7));
        stack.home.store(0, Relaxed);
        stack.limit.store(1, Relaxed);
        assert_eq!(free(elsewhere, stack, 5, tag, [7, 9]), Freed::Unchanged);
        assert_eq!(free(here, stack, 5, tag, [8, 9]), Freed::Unchanged);
        assert_eq!((tag.load(Relaxed), stack.len()), (7, 0));
        assert_eq!(free(here, stack, 5, tag, [7, 9]), Freed::Pushed);
        assert_eq!((tag.load(Relaxed), stack.len()), (9, 1));
        assert_eq!(stack.state.load(Relaxed) >> 16, 1, "one operation");
        let other = &AtomicU8::new(7);
        assert_eq!(
            free(here, stack, 6, other, [7, 9]),
            Freed::Tagged,
            "it is full"
        );
        assert_eq!((other.load(Relaxed), pop(here, stack)), (9, Some(5)));
    }

    #[test]
    fn a_sequence_adds_at_home_only() {
        let (here, elsewhere) = (&area_on(0), &area_on(1));
        let (home, word) = (&AtomicU32::new(0), &AtomicI64::new(-3));
        assert_eq!(add(here, home, word, 5), Some(2));
        assert_eq!(add(elsewhere, home, word, 5), None);
        assert_eq!(add(here, home, word, i64::MIN), Some(i64::MIN + 2));
        assert_eq!(word.load(Relaxed), i64::MIN + 2);
    }

    /// Reads the description that the last restartable sequence has noted in `area`: the addresses
    /// of its first instruction, of its end, and of the place at which the kernel continues if it
    /// stops the sequence.
    pub(super) fn description(area: &Area) -> [usize; 3] {
        let noted = area.rseq_cs.load(Relaxed);
        let noted = usize::try_from(noted).expect("an address");
        // SAFETY: the last restartable sequence has stored the address of its description (Linux:
        // `struct rseq_cs`) in the area. The description is never freed. It has two fields of 4
        // bytes and three of 8 bytes, so it can be read as four words of 8 bytes.
        let [version_and_flags, first, len, again] =
            unsafe { *std::ptr::with_exposed_provenance::<[u64; 4]>(noted) };
        assert_eq!((noted % 32, version_and_flags), (0, 0));
        [first, first + len, again].map(|at| usize::try_from(at).expect("an address"))
    }

    /// If the kernel has to stop a sequence whose description is wrong, it kills the process.
    #[test]
    fn each_description_is_one_that_the_kernel_accepts() {
        let (area, stack, tag) = (&area_on(0), &Stack::new(), &AtomicU8::new(7));
        stack.home.store(0, Relaxed);
        stack.limit.store(2, Relaxed);
        let mut seen = Vec::new();
        let mut note = || seen.push(description(area));
        assert!(push(area, stack, 5));
        note();
        assert_eq!(pop(area, stack), Some(5));
        note();
        assert_eq!(free(area, stack, 5, tag, [8, 9]), Freed::Unchanged);
        note();
        assert_eq!(free(area, stack, 5, tag, [7, 9]), Freed::Pushed);
        note();
        assert_eq!(add(area, &stack.home, &AtomicI64::new(0), 1), Some(1));
        note();
        assert!(push_run(area, stack, &[6]));
        note();
        assert_eq!(pop_run(area, stack, &mut [0]), 1);
        note();
        for [first, end, again] in seen {
            assert!((8..100).contains(&(end - first)), "{first:#x} to {end:#x}");
            assert!(!(first..end).contains(&again), "it begins again outside");
            // SAFETY: the word before this place is in the code of this program.
            let before =
                unsafe { std::ptr::with_exposed_provenance::<u32>(again - 4).read_unaligned() };
            assert_eq!(before, ops::SIGNATURE);
        }
    }

    #[test]
    fn a_thread_has_its_own_area_if_the_kernel_knows_sequences() {
        if !is_available() {
            return;
        }
        let area = set_up().expect("it is available");
        let other = std::thread::spawn(|| {
            let area = set_up().expect("it is available for every thread");
            std::ptr::from_ref(area).addr()
        });
        assert_ne!(
            other.join().expect("no panic"),
            std::ptr::from_ref(area).addr()
        );
        abort_on(area.cpu().expect("it is registered"));
        leave();
        assert_eq!(mine().cpu(), None);
    }
}
