//! The restartable sequences for AArch64. `x86_64.rs` explains their form and the offsets.
//!
//! The home of a stack is the CPU whose threads may use the stack. The load of the home is an
//! acquire. It pairs with the release store of the thread that made this CPU the home. The other
//! loads and stores are plain. Two kinds of threads read the values that the sequences store:
//! threads on the same CPU, between which the kernel switches, and threads that have issued a
//! barrier to stop the sequence.

#![expect(unsafe_code, reason = "restartable sequences are written in assembly")]

use std::arch::asm;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU32};

use plimsoll_mm::machine::Freed;

use super::super::stack::Stack;
use super::Area;

/// The word that must precede the code to which the kernel jumps when it stops a restartable
/// sequence (Linux: `RSEQ_SIG`).
pub(super) const SIGNATURE: u32 = 0xd428_bc00;

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
            // The signature is the encoding of an instruction (`brk`).
            ".inst 0xd428bc00\n",
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
            "adrp {t}, ",
            $descr,
            "b\n",
            "add {t}, {t}, :lo12:",
            $descr,
            "b\n",
            "str {t}, [{area}, #8]\n",
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
            "b ",
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
    let page: u64;
    // SAFETY: the sequence reads the stack's `home` and `state`, and an entry of `pages` below the
    // number of pages in `state`. It writes `state`. All of these are atomics. The sequence also
    // writes the address of its description, which is never freed, to the thread's own area.
    unsafe {
        asm!(
            described!("22", "23", "24", "25", "26"),
            "ldr {t:w}, [{area}, #4]",
            "ldar {s:w}, [{stack}]",
            "cmp {t:w}, {s:w}",
            "mov {page:w}, #-1",
            "b.ne 25f",
            "ldr {s}, [{stack}, #8]",
            "ands {t}, {s}, #0xffff",
            "b.eq 25f",
            "add {t}, {stack}, {t}, lsl #2",
            "ldr {page:w}, [{t}, #12]",
            "add {s}, {s}, #16, lsl #12",
            "sub {s}, {s}, #1",
            "str {s}, [{stack}, #8]",
            "25:",
            area = in(reg) area,
            stack = in(reg) stack,
            page = out(reg) page,
            t = out(reg) _,
            s = out(reg) _,
            options(nostack),
        );
    }
    u32::try_from(page).ok().filter(|&page| page != NO_PAGE)
}

/// Pushes a page if the stack has fewer pages than its limit, and the thread runs on the stack's
/// *home*, the CPU whose threads may use the stack.
#[inline(always)]
pub(crate) fn push(area: &Area, stack: &Stack, page: u32) -> bool {
    let pushed: u64;
    // SAFETY: as for `pop`, and the sequence writes an entry of `pages` below the limit, which is
    // at most the length of `pages`.
    unsafe {
        asm!(
            described!("22", "23", "24", "25", "26"),
            "ldr {t:w}, [{area}, #4]",
            "ldar {s:w}, [{stack}]",
            "cmp {t:w}, {s:w}",
            "b.ne 27f",
            "ldr {s}, [{stack}, #8]",
            "ldr {u:w}, [{stack}, #4]",
            "and {t}, {s}, #0xffff",
            "cmp {t:w}, {u:w}",
            "b.hs 27f",
            "add {t}, {stack}, {t}, lsl #2",
            "str {page:w}, [{t}, #16]",
            "add {s}, {s}, #16, lsl #12",
            "add {s}, {s}, #1",
            "str {s}, [{stack}, #8]",
            "25:",
            "mov {u:w}, #1",
            "b 28f",
            "27:",
            "mov {u:w}, #0",
            "28:",
            area = in(reg) area,
            stack = in(reg) stack,
            page = in(reg) page,
            t = out(reg) _,
            s = out(reg) _,
            u = out(reg) pushed,
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
    let pushed: u64;
    // SAFETY: as for `push`. The sequence reads only entries of `pages`, of which there is at least
    // one, and writes as many entries of the stack, all below the limit.
    unsafe {
        asm!(
            described!("22", "23", "24", "25", "26"),
            "ldr {t:w}, [{area}, #4]",
            "ldar {s:w}, [{stack}]",
            "cmp {t:w}, {s:w}",
            "b.ne 27f",
            "ldr {s}, [{stack}, #8]",
            "ldr {u:w}, [{stack}, #4]",
            "and {t}, {s}, #0xffff",
            "sub {u}, {u}, {t}",
            "cmp {u}, {len}",
            "b.lt 27f",
            "add {t}, {stack}, {t}, lsl #2",
            "add {t}, {t}, #16",
            "mov {n}, #0",
            "30:",
            "ldr {u:w}, [{pages}, {n}, lsl #2]",
            "str {u:w}, [{t}, {n}, lsl #2]",
            "add {n}, {n}, #1",
            "cmp {n}, {len}",
            "b.ne 30b",
            "add {s}, {s}, #16, lsl #12",
            "add {s}, {s}, {len}",
            "str {s}, [{stack}, #8]",
            "25:",
            "mov {u:w}, #1",
            "b 28f",
            "27:",
            "mov {u:w}, #0",
            "28:",
            area = in(reg) area,
            stack = in(reg) stack,
            pages = in(reg) pages.as_ptr(),
            len = in(reg) pages.len(),
            t = out(reg) _,
            s = out(reg) _,
            u = out(reg) pushed,
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
    let done: u64;
    // SAFETY: the sequence reads the stack's `home` and `state`, and writes `state`, all of them
    // atomics. It writes the address of its description, which is never freed, to the thread's own
    // area.
    unsafe {
        asm!(
            described!("22", "23", "24", "25", "26"),
            "ldr {t:w}, [{area}, #4]",
            "ldar {s:w}, [{stack}]",
            "cmp {t:w}, {s:w}",
            "b.ne 27f",
            "ldr {s}, [{stack}, #8]",
            "cmp {s}, {before}",
            "b.ne 27f",
            "str {after}, [{stack}, #8]",
            "25:",
            "mov {t:w}, #1",
            "b 28f",
            "27:",
            "mov {t:w}, #0",
            "28:",
            area = in(reg) area,
            stack = in(reg) stack,
            before = in(reg) before,
            after = in(reg) after,
            t = out(reg) done,
            s = out(reg) _,
            options(nostack),
        );
    }
    done != 0
}

/// Changes the tag of a page from `old` to `new`, and pushes the page. Does so only if the thread
/// runs on the stack's *home*, the CPU whose threads may use the stack. `x86_64.rs` explains the
/// code at label 26.
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
            "cmn {t}, #1",
            "b.ne 27f",
            "ldrb {t:w}, [{tag}]",
            "cmp {t:w}, {new:w}",
            "b.ne 27f",
            "b {tagged}",
            "27: b 23f",
            ".popsection",
            begin!("22", "23", "24"),
            "ldr {t:w}, [{area}, #4]",
            "ldar {s:w}, [{stack}]",
            "cmp {t:w}, {s:w}",
            "b.ne {unchanged}",
            "ldrb {t:w}, [{tag}]",
            "cmp {t:w}, {old:w}",
            "b.ne {unchanged}",
            "ldr {s}, [{stack}, #8]",
            "ldr {u:w}, [{stack}, #4]",
            "and {t}, {s}, #0xffff",
            "cmp {t:w}, {u:w}",
            "b.hs {full}",
            "add {t}, {stack}, {t}, lsl #2",
            "str {page:w}, [{t}, #16]",
            "add {s}, {s}, #16, lsl #12",
            "add {s}, {s}, #1",
            "mov {t}, #-1",
            "strb {new:w}, [{tag}]",
            "str {s}, [{stack}, #8]",
            "25:",
            area = in(reg) area,
            stack = in(reg) stack,
            page = in(reg) page,
            tag = in(reg) tag,
            old = in(reg) u32::from(old),
            new = in(reg) u32::from(new),
            t = out(reg) _,
            s = out(reg) _,
            u = out(reg) _,
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
            "ldr {t:w}, [{area}, #4]",
            "ldar {s:w}, [{stack}]",
            "cmp {t:w}, {s:w}",
            "b.ne {unchanged}",
            "ldrb {t:w}, [{tag}]",
            "cmp {t:w}, {old:w}",
            "b.ne {unchanged}",
            "strb {new:w}, [{tag}]",
            "25:",
            area = in(reg) area,
            stack = in(reg) stack,
            tag = in(reg) tag,
            old = in(reg) u32::from(old),
            new = in(reg) u32::from(new),
            t = out(reg) _,
            s = out(reg) _,
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
    let (added, new): (u64, i64);
    // SAFETY: the sequence reads `home`, and reads and writes the word, all of them atomics. It
    // writes the address of its description, which is never freed, to the thread's own area.
    unsafe {
        asm!(
            described!("22", "23", "24", "25", "26"),
            "ldr {t:w}, [{area}, #4]",
            "ldar {s:w}, [{home}]",
            "cmp {t:w}, {s:w}",
            "mov {t:w}, #0",
            "b.ne 27f",
            "ldr {s}, [{word}]",
            "add {s}, {s}, {delta}",
            "str {s}, [{word}]",
            "25:",
            "mov {t:w}, #1",
            "27:",
            area = in(reg) area,
            home = in(reg) home,
            word = in(reg) word,
            delta = in(reg) delta,
            s = out(reg) new,
            t = out(reg) added,
            options(nostack),
        );
    }
    (added != 0).then_some(new)
}
