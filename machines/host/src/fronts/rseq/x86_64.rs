//! The restartable sequences for x86-64.
//!
//! A sequence begins by noting its description in the thread's area. The description has three
//! parts. The first is the address of the sequence's first instruction. The second is the length of
//! the sequence, up to and including the last store (the *commit*). The third is the place at which
//! the thread continues if the kernel stops the sequence before the commit: there the sequence
//! begins again. The offsets of fields are those of `Area` (4: `cpu_id`, 8: `rseq_cs`) and of
//! `Stack` (0: `home`, 4: `limit`, 8: `state`, 16: `pages`).
//!
//! x86 does not reorder loads with loads or stores with stores, so the plain loads and stores here
//! are acquires and releases.

#![expect(unsafe_code, reason = "restartable sequences are written in assembly")]

use std::arch::asm;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU32};

use plimsoll_mm::machine::Freed;

use super::super::stack::Stack;
use super::Area;

/// The word that must precede the code to which the kernel jumps when it stops a restartable
/// sequence (Linux: `RSEQ_SIG`).
pub(super) const SIGNATURE: u32 = 0x5305_3053;

/// A number that no page has, because a zone has fewer pages than this.
const NO_PAGE: u32 = u32::MAX;

/// The description of a restartable sequence. `$descr` is its label. Three other labels mark code:
/// `$first` is before the first instruction of the sequence, `$end` is after the last one, and
/// `$again` is where the kernel lets the thread continue if it stops the sequence.
macro_rules! description {
    ($descr:literal, $first:literal, $end:literal, $again:literal) => {
        concat!(
            ".pushsection __rseq_cs, \"aw\"\n",
            ".balign 32\n",
            $descr,
            ": .long 0, 0\n",
            ".quad ",
            $first,
            "f, ",
            $end,
            "f - ",
            $first,
            "f, ",
            $again,
            "f\n",
            ".popsection\n",
        )
    };
}

/// Begins, at the label `$again`, the code at which a thread continues if the kernel stops the
/// sequence. The code ends with `.popsection`.
macro_rules! abort_handler {
    ($again:literal) => {
        concat!(
            ".pushsection .text.unlikely.plimsoll_rseq, \"ax\"\n",
            // The signature is the operand of an instruction that does nothing useful (`ud1`), so
            // that disassemblers decode the next instructions correctly.
            ".byte 0x0f, 0xb9, 0x3d\n",
            ".long 0x53053053\n",
            $again,
            ":\n",
        )
    };
}

/// Stores the address of the description `$descr` in the thread's area, and then begins the
/// sequence. The label `$begin` is before the store, and `$first` before the sequence.
macro_rules! begin {
    ($descr:literal, $begin:literal, $first:literal) => {
        concat!(
            $begin,
            ":\n",
            "lea {t:r}, [rip + ",
            $descr,
            "b]\n",
            "mov qword ptr [{area} + 8], {t:r}\n",
            $first,
            ":\n",
        )
    };
}

/// The description and the beginning of a restartable sequence that begins again if the kernel
/// stops it.
macro_rules! described {
    ($descr:literal, $begin:literal, $first:literal, $end:literal, $again:literal) => {
        concat!(
            description!($descr, $first, $end, $again),
            abort_handler!($again),
            "jmp ",
            $begin,
            "f\n",
            ".popsection\n",
            begin!($descr, $begin, $first),
        )
    };
}

/// Pops a page if the thread runs on the stack's *home*, the CPU whose threads may use the stack.
#[inline(always)]
pub(crate) fn pop(area: &Area, stack: &Stack) -> Option<u32> {
    let page: u32;
    // SAFETY: the sequence reads the stack's `home` and `state`, and an entry of `pages` below the
    // number of pages in `state`. It writes `state`. All of these are atomics. The sequence also
    // writes the address of its description, which is never freed, to the thread's own area.
    unsafe {
        asm!(
            described!("22", "23", "24", "25", "26"),
            "mov {t:e}, dword ptr [{area} + 4]",
            "cmp {t:e}, dword ptr [{stack}]",
            "mov {t:e}, -1",
            "jne 25f",
            "mov {s}, qword ptr [{stack} + 8]",
            "movzx {t:e}, {s:x}",
            "sub {t:e}, 1",
            "jb 25f",
            "mov {t:e}, dword ptr [{stack} + 4 * {t:r} + 16]",
            "add {s}, 0xffff",
            "mov qword ptr [{stack} + 8], {s}",
            "25:",
            area = in(reg) area,
            stack = in(reg) stack,
            t = out(reg) page,
            s = out(reg) _,
            options(nostack),
        );
    }
    (page != NO_PAGE).then_some(page)
}

/// Pushes a page if the stack has fewer pages than its limit, and the thread runs on the stack's
/// *home*, the CPU whose threads may use the stack.
#[inline(always)]
pub(crate) fn push(area: &Area, stack: &Stack, page: u32) -> bool {
    let pushed: u32;
    // SAFETY: as for `pop`, and the sequence writes an entry of `pages` below the limit, which is
    // at most the length of `pages`.
    unsafe {
        asm!(
            described!("22", "23", "24", "25", "26"),
            "mov {t:e}, dword ptr [{area} + 4]",
            "cmp {t:e}, dword ptr [{stack}]",
            "jne 27f",
            "mov {s}, qword ptr [{stack} + 8]",
            "movzx {t:e}, {s:x}",
            "cmp {t:e}, dword ptr [{stack} + 4]",
            "jae 27f",
            "mov dword ptr [{stack} + 4 * {t:r} + 16], {page:e}",
            "add {s}, 0x10001",
            "mov qword ptr [{stack} + 8], {s}",
            "25:",
            "mov {t:e}, 1",
            "jmp 28f",
            "27:",
            "xor {t:e}, {t:e}",
            "28:",
            area = in(reg) area,
            stack = in(reg) stack,
            page = in(reg) page,
            t = out(reg) pushed,
            s = out(reg) _,
            options(nostack),
        );
    }
    pushed != 0
}

/// Pushes all of `pages` in their order if the stack then has at most as many pages as its limit,
/// and the thread runs on the stack's *home*, the CPU whose threads may use the stack.
pub(crate) fn push_run(area: &Area, stack: &Stack, pages: &[u32]) -> bool {
    if pages.is_empty() {
        return true;
    }
    let pushed: u32;
    // SAFETY: as for `push`. The sequence reads only entries of `pages`, of which there is at least
    // one, and writes as many entries of the stack, all below the limit.
    unsafe {
        asm!(
            described!("22", "23", "24", "25", "26"),
            "mov {t:e}, dword ptr [{area} + 4]",
            "cmp {t:e}, dword ptr [{stack}]",
            "jne 27f",
            "mov {s}, qword ptr [{stack} + 8]",
            "movzx {t:e}, {s:x}",
            "mov {u:e}, dword ptr [{stack} + 4]",
            "sub {u}, {t:r}",
            "cmp {u}, {len}",
            "jl 27f",
            "lea {t:r}, [{stack} + 4 * {t:r} + 16]",
            "xor {n:e}, {n:e}",
            "30:",
            "mov {u:e}, dword ptr [{pages} + 4 * {n}]",
            "mov dword ptr [{t:r} + 4 * {n}], {u:e}",
            "add {n}, 1",
            "cmp {n}, {len}",
            "jne 30b",
            "lea {s}, [{s} + {len} + 0x10000]",
            "mov qword ptr [{stack} + 8], {s}",
            "25:",
            "mov {t:e}, 1",
            "jmp 28f",
            "27:",
            "xor {t:e}, {t:e}",
            "28:",
            area = in(reg) area,
            stack = in(reg) stack,
            pages = in(reg) pages.as_ptr(),
            len = in(reg) pages.len(),
            t = out(reg) pushed,
            s = out(reg) _,
            u = out(reg) _,
            n = out(reg) _,
            options(nostack),
        );
    }
    pushed != 0
}

/// Replaces the stack's state `before` by `after` if the thread runs on the stack's *home*, the CPU
/// whose threads may use the stack. Returns `false`, without having done anything, if the stack has
/// another state or home.
pub(crate) fn commit(area: &Area, stack: &Stack, before: u64, after: u64) -> bool {
    let done: u32;
    // SAFETY: the sequence reads the stack's `home` and `state`, and writes `state`, all of them
    // atomics. It writes the address of its description, which is never freed, to the thread's own
    // area.
    unsafe {
        asm!(
            described!("22", "23", "24", "25", "26"),
            "mov {t:e}, dword ptr [{area} + 4]",
            "cmp {t:e}, dword ptr [{stack}]",
            "jne 27f",
            "cmp {before}, qword ptr [{stack} + 8]",
            "jne 27f",
            "mov qword ptr [{stack} + 8], {after}",
            "25:",
            "mov {t:e}, 1",
            "jmp 28f",
            "27:",
            "xor {t:e}, {t:e}",
            "28:",
            area = in(reg) area,
            stack = in(reg) stack,
            before = in(reg) before,
            after = in(reg) after,
            t = out(reg) done,
            options(nostack),
        );
    }
    done != 0
}

/// Changes the tag of a page from `old` to `new`, and pushes the page. Does so only if the thread
/// runs on the stack's *home*, the CPU whose threads may use the stack.
///
/// One restartable sequence does both. If the thread is preempted between the load and the store of
/// the tag, it loads the tag again. If it is preempted between the store of the tag and the commit,
/// which is the store of the stack's state, the page has the new tag but is not in the stack. The
/// code at label 26, to which the kernel then jumps, recognises this case: the sequence sets a
/// register to -1 just before it stores the tag, and no earlier instruction does so.
#[inline(always)]
pub(crate) fn free(
    area: &Area,
    stack: &Stack,
    page: u32,
    tag: &AtomicU8,
    [old, new]: [u8; 2],
) -> Freed {
    // SAFETY: the reasons are those for `push`. In addition, the sequence reads and writes the tag,
    // which is an atomic.
    unsafe {
        asm!(
            description!("22", "24", "25", "26"),
            abort_handler!("26"),
            "cmp {t:r}, -1",
            "jne 23f",
            "cmp byte ptr [{tag}], {new:l}",
            "jne 23f",
            "jmp {tagged}",
            ".popsection",
            begin!("22", "23", "24"),
            "mov {t:e}, dword ptr [{area} + 4]",
            "cmp {t:e}, dword ptr [{stack}]",
            "jne {unchanged}",
            "cmp byte ptr [{tag}], {old:l}",
            "jne {unchanged}",
            "mov {s}, qword ptr [{stack} + 8]",
            "movzx {t:e}, {s:x}",
            "cmp {t:e}, dword ptr [{stack} + 4]",
            "jae {full}",
            "mov dword ptr [{stack} + 4 * {t:r} + 16], {page:e}",
            "add {s}, 0x10001",
            "mov {t:r}, -1",
            "mov byte ptr [{tag}], {new:l}",
            "mov qword ptr [{stack} + 8], {s}",
            "25:",
            area = in(reg) area,
            stack = in(reg) stack,
            page = in(reg) page,
            tag = in(reg) tag,
            old = in(reg) u32::from(old),
            new = in(reg) u32::from(new),
            t = out(reg) _,
            s = out(reg) _,
            tagged = label { return Freed::Tagged },
            full = label { return retag(area, stack, tag, [old, new]) },
            unchanged = label { return Freed::Unchanged },
            options(nostack),
        );
    }
    Freed::Pushed
}

/// Changes the tag of a page from `old` to `new`, as [`free`] does, but does not push the page.
#[cold]
#[inline(never)]
fn retag(area: &Area, stack: &Stack, tag: &AtomicU8, [old, new]: [u8; 2]) -> Freed {
    // SAFETY: the restartable sequence reads `home` of the stack and the tag, and writes the tag,
    // all of them atomics. It writes the address of its description, which is never freed, to the
    // thread's own area.
    unsafe {
        asm!(
            described!("22", "23", "24", "25", "26"),
            "mov {t:e}, dword ptr [{area} + 4]",
            "cmp {t:e}, dword ptr [{stack}]",
            "jne {unchanged}",
            "cmp byte ptr [{tag}], {old}",
            "jne {unchanged}",
            "mov byte ptr [{tag}], {new}",
            "25:",
            area = in(reg) area,
            stack = in(reg) stack,
            tag = in(reg) tag,
            old = in(reg_byte) old,
            new = in(reg_byte) new,
            t = out(reg) _,
            unchanged = label { return Freed::Unchanged },
            options(nostack),
        );
    }
    Freed::Tagged
}

/// Adds `delta` to a word if `home` is the number of the CPU on which the thread runs. Returns the
/// new value.
#[inline(always)]
pub(crate) fn add(area: &Area, home: &AtomicU32, word: &AtomicI64, delta: i64) -> Option<i64> {
    let (added, new): (u32, i64);
    // SAFETY: the restartable sequence reads `home`, and reads and writes the word, all of them
    // atomics. It writes the address of its description, which is never freed, to the thread's own
    // area.
    unsafe {
        asm!(
            described!("22", "23", "24", "25", "26"),
            "mov {t:e}, dword ptr [{area} + 4]",
            "cmp {t:e}, dword ptr [{home}]",
            "mov {t:e}, 0",
            "jne 27f",
            "mov {new}, qword ptr [{word}]",
            "add {new}, {delta}",
            "mov qword ptr [{word}], {new}",
            "25:",
            "mov {t:e}, 1",
            "27:",
            area = in(reg) area,
            home = in(reg) home,
            word = in(reg) word,
            delta = in(reg) delta,
            new = out(reg) new,
            t = out(reg) added,
            options(nostack),
        );
    }
    (added != 0).then_some(new)
}
