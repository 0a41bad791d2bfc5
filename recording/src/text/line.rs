//! One line of `perf script`, as bytes:
//!
//! ```text
//!  kworker/1:2-eve 21285 [001] 4541.077310: kmem:mm_page_free: page=0x50ac27 pfn=0x50ac27 order=0
//!  comm            pid   cpu   seconds      event              fields
//! ```
//!
//! A comm may contain spaces, colons and brackets, so the parser searches for a CPU in brackets
//! followed by a time. perf computes `page` from a wrong base, so the parser identifies a page by
//! `pfn`, and by `page` only if there is no `pfn`. `pfn` is hexadecimal since Linux 5.13 and
//! decimal before. For a failed allocation, neither `page` nor `pfn` is the number of a page.

use super::Expected;
use super::events::event;
use super::number::{decimal, digits, narrow, number_until};
use crate::event::Event;
use crate::symbols::Symbols;

/// What a line of `perf script` contains.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    /// An event of a kind that recordings can contain.
    Event(Event),
    /// The name of an event of another kind. Recordings cannot contain such events.
    Other(&'a [u8]),
    /// An empty line or a comment.
    Blank,
}

/// The largest number of CPUs that the parser accepts, which is the largest number for which Linux
/// can be built.
const CPUS_MAX: u64 = 8192;

/// Parses a line without its newline.
pub(super) fn parse<'a>(line: &'a [u8], symbols: &mut Symbols) -> Result<Line<'a>, Expected> {
    match line.trim_ascii_start().first() {
        None | Some(b'#') => return Ok(Line::Blank),
        Some(_) => {}
    }
    let (head, rest) = split_at_cpu(line).ok_or("`comm pid [cpu] seconds: event: fields`")?;
    let (cpu, rest) = number_until(&rest[1..], b']').ok_or("a CPU number in brackets")?;
    let cpu = narrow(cpu, CPUS_MAX - 1).ok_or("a CPU number below 8192")?;
    let (time_ns, rest) = time(rest.trim_ascii_start()).ok_or("a time as `seconds.fraction:`")?;
    let (name, fields) = event_name(rest).ok_or("an event name followed by `:`")?;
    let pid = pid(head).ok_or("a pid before the CPU")?;
    let Some(what) = event(name, fields, symbols)? else {
        return Ok(Line::Other(name));
    };
    Ok(Line::Event(Event {
        time_ns,
        cpu,
        pid,
        what,
    }))
}

/// Splits a line before the first `[cpu]` that is followed by a time.
fn split_at_cpu(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let is_cpu = |at: &usize| {
        let (cpu, rest) = digits(&line[at + 1..]);
        let after = rest.strip_prefix(b"] ").map(<[u8]>::trim_ascii_start);
        let (seconds, rest) = digits(after.unwrap_or_default());
        !cpu.is_empty() && !seconds.is_empty() && rest.first() == Some(&b'.')
    };
    let opens = line
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'[')
        .map(|(at, _)| at);
    opens.into_iter().find(is_cpu).map(|at| line.split_at(at))
}

/// Parses the last word before the CPU: `pid` or `pid/tid`. Of `pid/tid`, returns the thread,
/// because threads allocate.
fn pid(head: &[u8]) -> Option<u32> {
    let word = head
        .trim_ascii_end()
        .rsplit(|byte| *byte == b' ' || *byte == b'/')
        .next()?;
    // perf prints -1 for a thread that perf no longer knows.
    if word == b"-1" {
        Some(0)
    } else {
        narrow(decimal(word)?, u64::from(u32::MAX))
    }
}

/// Parses `seconds.fraction:` as nanoseconds; the fraction has six digits, or nine with `--ns`.
fn time(text: &[u8]) -> Option<(u64, &[u8])> {
    let (seconds, rest) = number_until(text, b'.')?;
    let places = u32::try_from(digits(rest).0.len()).ok()?;
    let (fraction, rest) = number_until(rest, b':')?;
    let scale = 10_u64.pow(9_u32.checked_sub(places)?);
    let time_ns = seconds
        .checked_mul(1_000_000_000)?
        .checked_add(fraction * scale)?;
    Some((time_ns, rest))
}

/// Returns the event's name with its subsystem, and the fields after it. A sampling period may
/// precede the name.
fn event_name(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let (_period, text) = digits(text.trim_ascii_start());
    let text = text.trim_ascii_start();
    let end = text
        .iter()
        .position(|byte| *byte == b' ')
        .unwrap_or(text.len());
    let name = text[..end].strip_suffix(b":")?;
    (!name.is_empty()).then(|| (name, &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::What;

    const ALLOC: &str = "            perf   500 [001]  4540.333288:             kmem:mm_page_alloc: page=0x2238e1 pfn=0x2238e1 order=3 migratetype=0 gfp_flags=GFP_HIGHUSER|__GFP_ACCOUNT";

    fn parse(line: &[u8]) -> Result<Line<'_>, Expected> {
        super::parse(line, &mut Symbols::default())
    }

    fn record(line: &str) -> Event {
        match parse(line.as_bytes()) {
            Ok(Line::Event(event)) => event,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn an_allocation_is_read_to_its_last_field() {
        let what = What::Alloc {
            pfn: 0x22_38e1,
            order: 3,
            mobility: Some(0),
            gfp: None,
        };
        assert_eq!(
            record(ALLOC),
            Event {
                time_ns: 4_540_333_288_000,
                cpu: 1,
                pid: 500,
                what
            }
        );
    }

    #[test]
    fn every_kind_of_event_is_told_apart() {
        let event = |name: &str| record(&ALLOC.replace("mm_page_alloc", name)).what;
        let (pfn, order, mobility) = (0x22_38e1, 3, Some(0));
        assert_eq!(event("mm_page_free"), What::Free { pfn, order });
        assert_eq!(event("mm_page_free_batched"), What::FreeBatched { pfn });
        let drained = What::PcpuDrain {
            pfn,
            order,
            mobility,
        };
        assert_eq!(event("mm_page_pcpu_drain"), drained);
        let taken = What::ZoneLocked {
            pfn,
            order,
            mobility: 0,
            percpu_refill: false,
        };
        assert_eq!(event("mm_page_alloc_zone_locked"), taken);
        let other = ALLOC.replace("mm_page_alloc", "kmalloc");
        assert_eq!(parse(other.as_bytes()), Ok(Line::Other(b"kmem:kmalloc")));
    }

    #[test]
    fn a_comm_may_hold_spaces_colons_and_brackets() {
        for comm in [
            "Web Content",
            "kworker/1:2-eve",
            "a [007] b: 1.5:",
            "[000] ",
            "x [1] 2 y",
        ] {
            let record = record(&ALLOC.replace("perf", comm));
            assert_eq!((record.pid, record.cpu), (500, 1), "{comm}");
        }
    }

    #[test]
    fn other_options_of_perf_script_are_understood() {
        assert_eq!(record(&ALLOC.replace("  500 ", " 499/500 ")).pid, 500);
        assert_eq!(record(&ALLOC.replace("  500 ", "  -1 ")).pid, 0);
        assert_eq!(
            record(&ALLOC.replace(".333288:", ".333288123:")).time_ns,
            4_540_333_288_123
        );
        assert_eq!(
            record(&ALLOC.replace("kmem:mm", "   1 kmem:mm")),
            record(ALLOC)
        );
        assert_eq!(
            record(&ALLOC.replace("pfn=0x2238e1", "pfn=2242785")),
            record(ALLOC)
        );
        assert_eq!(record(&ALLOC.replace("pfn=0x2238e1 ", "")), record(ALLOC));
    }

    #[test]
    fn an_allocation_without_a_page_has_failed() {
        let failed = What::AllocFailed {
            order: 3,
            mobility: Some(0),
        };
        for page in [
            "page=(nil) pfn=0x0",
            "page=(nil)",
            "page=0 pfn=0",
            "pfn=0xffffffffffffffff",
        ] {
            assert_eq!(
                record(&ALLOC.replace("page=0x2238e1 pfn=0x2238e1", page)).what,
                failed
            );
        }
    }

    #[test]
    fn comments_and_empty_lines_are_blank() {
        for line in ["", "   ", "# comment", "  # comment"] {
            assert_eq!(parse(line.as_bytes()), Ok(Line::Blank), "{line:?}");
        }
    }

    #[test]
    fn every_part_that_can_be_wrong_says_what_was_expected() {
        let free = ALLOC.replace("mm_page_alloc:", "mm_page_free:");
        let cases = [
            (
                "hello world".to_owned(),
                "`comm pid [cpu] seconds: event: fields`",
            ),
            (ALLOC.replace("[001]", "[9999]"), "a CPU number below 8192"),
            (
                ALLOC.replace("4540.333288:", "4540,333288:"),
                "`comm pid [cpu] seconds: event: fields`",
            ),
            (
                ALLOC.replace("4540.333288:", "4540.3332881234:"),
                "a time as `seconds.fraction:`",
            ),
            (
                ALLOC.replace("alloc:", "alloc"),
                "an event name followed by `:`",
            ),
            (ALLOC.replace("  500 ", " pid "), "a pid before the CPU"),
            (
                ALLOC.replace("order=3", "order=11"),
                "an order from 0 to 10",
            ),
            (ALLOC.replace("order=3", "order=x"), "`order=` and a number"),
            (ALLOC.replace("order=3 ", ""), "`order=` and a number"),
            (
                ALLOC.replace("pfn=0x2238e1", "pfn=0xzz"),
                "`pfn=` and a number",
            ),
            (
                ALLOC.replace("page=0x2238e1 pfn=0x2238e1", ""),
                "`pfn=` and a number",
            ),
            (
                free.replace("pfn=0x2238e1", "pfn=0x0"),
                "the `pfn` of a page",
            ),
        ];
        for (line, expected) in cases {
            assert_eq!(parse(line.as_bytes()), Err(expected), "{line}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(mut line: Vec<u8>, at in 0..ALLOC.len(), cut in 0..ALLOC.len()) {
            let _ = parse(&line);
            line.splice(0..0, ALLOC.bytes().take(at));
            line.extend(ALLOC.bytes().skip(cut));
            let _ = parse(&line);
        }
    }
}
