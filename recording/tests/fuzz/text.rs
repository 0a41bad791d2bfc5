//! Reads the text of `perf script` with words and characters replaced at random.

use std::io::Cursor;

use plimsoll_recording::{ReadError, Recording, text};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// Lines that the parser accepts, one for each way in which it reads a line.
const LINES: [&str; 16] = [
    "perf 500 [001] 4540.333288: kmem:mm_page_alloc: page=0x2238e1 pfn=0x2238e1 order=3 migratetype=0 gfp_flags=0xdc0",
    "Web Content 499/500 [000] 1.000001: kmem:mm_page_alloc: page=(nil) pfn=0x0 order=9 migratetype=-1 gfp_flags=GFP_KERNEL",
    "a [7] b: 500 [001] 1.000002123: kmem:mm_page_free: page=0x50ac27 pfn=0x50ac27 order=0",
    "perf -1 [001] 1.000003: 1 kmem:mm_page_free_batched: page=0x50ac27 pfn=5287975 order=0",
    "perf 5 [001] 1.000004: kmem:mm_page_pcpu_drain: page=0x50ac27 pfn=0x50ac27 order=0 migratetype=1",
    "perf 5 [001] 1.000005: kmem:mm_page_alloc_zone_locked: page=0x5 pfn=0x5 order=0 migratetype=1 percpu_refill=1",
    "perf 5 [001] 1.000006: kmem:mm_page_alloc_extfrag: page=0x5 pfn=0x5 alloc_order=0 fallback_order=9 pageblock_order=9 alloc_migratetype=0 fallback_migratetype=1 fragmenting=1 change_ownership=1",
    "perf 5 [001] 1.000007: workqueue:workqueue_queue_work: work struct=0xffff8881 function=vmstat_update workqueue=mm_percpu_wq",
    "perf 5 [001] 1.000008: workqueue:workqueue_execute_start: work struct 0xffff8881: function vmstat_update",
    "perf 5 [001] 1.000009: timer:timer_expire_entry: timer=0xffff8881 function=delayed_work_timer_fn now=4294892296",
    "perf 5 [001] 1.000010: kmem:rss_stat: mm_id=77 curr=1 type=MM_ANONPAGES size=-4096B",
    "perf 5 [001] 1.000011: oom:mark_victim: pid=77 comm=hog",
    "perf 5 [001] 1.000012: plimsoll:bulkret: (a <- b) ret=0x1f",
    "perf 5 [001] 1.000013: mmap:exit_mmap: mt_mod 0xffff8881, DESTROY",
    "perf 5 [001] 1.000014: kmem:kmalloc: call_site=f ptr=0x5",
    "# a comment",
];

/// The texts that replace a word or a part of a word.
const PIECES: [&str; 24] = [
    "",
    " ",
    "0",
    "-1",
    "0x",
    "18446744073709551615",
    "18446744073709551616",
    "0xffffffffffffffff",
    "0x10000000000000000",
    "4294967296",
    "9223372036854775808",
    "-9223372036854775808B",
    "18446744073.709551616",
    "1.0000000001",
    "[001] 1.5:",
    "[8192]",
    "[",
    "]",
    ":",
    "=",
    "#",
    "(nil)",
    "\u{0}\u{1b}[31m",
    "é€",
];

/// One change of a line of `perf script`: a word, a value, a byte or the line's end.
#[derive(Clone, Debug)]
enum Edit {
    /// Replaces a word, and the blank after it.
    Word(Index, &'static str),
    /// Replaces a part of a word. The part ends at a blank or at one of `=:.[]`.
    Value(Index, &'static str),
    Byte(Index, u8),
    Cut(Index),
}

fn edit() -> impl Strategy<Value = Edit> {
    let (place, piece) = (any::<Index>, || select(PIECES.to_vec()));
    prop_oneof![
        2 => (place(), piece()).prop_map(|(at, to)| Edit::Word(at, to)),
        2 => (place(), piece()).prop_map(|(at, to)| Edit::Value(at, to)),
        1 => (place(), any::<u8>()).prop_map(|(at, to)| Edit::Byte(at, to)),
        1 => place().prop_map(Edit::Cut),
    ]
}

fn apply(line: &mut Vec<u8>, edit: &Edit) {
    let exchange = |line: &[u8], separators: &[u8], at: &Index, to: &str| {
        let mut parts: Vec<&[u8]> = line
            .split_inclusive(|byte| separators.contains(byte))
            .collect();
        if !parts.is_empty() {
            let at = at.index(parts.len());
            parts[at] = to.as_bytes();
        }
        parts.concat()
    };
    match edit {
        Edit::Word(at, to) => *line = exchange(line, b" ", at, to),
        Edit::Value(at, to) => *line = exchange(line, b" =:.[]", at, to),
        Edit::Byte(at, to) => {
            let at = at.index(line.len() + 1);
            line.insert(at, *to);
        }
        Edit::Cut(at) => line.truncate(at.index(line.len() + 1)),
    }
}

fn line() -> impl Strategy<Value = Vec<u8>> {
    let good = select(LINES.to_vec());
    (good, vec(edit(), 0..4)).prop_map(|(good, edits)| {
        let mut line = good.as_bytes().to_vec();
        for edit in &edits {
            apply(&mut line, edit);
        }
        line
    })
}

/// Asserts that reading gives events, at most one for each line, or an error with a text.
fn assert_readable_or_refused(bytes: &[u8]) {
    let mut reader = text::Reader::new("f", Box::new(Cursor::new(bytes.to_vec())));
    let mut events = 0;
    let mut refused = None;
    for read in reader.by_ref() {
        match read {
            Ok(_) => events += 1,
            Err(error) => refused = Some(error),
        }
    }
    assert!(reader.next().is_none(), "an error is the last item");
    let lines = bytes.split(|byte| *byte == b'\n').count() as u64;
    assert!(reader.lines() <= lines && events <= reader.lines());
    let others: u64 = reader.ignored().values().sum();
    assert!(events + others <= reader.lines());
    match refused {
        None => {}
        Some(error @ (ReadError::Line { line, .. } | ReadError::Backwards { line, .. })) => {
            assert_eq!(line, reader.lines());
            let shown = error.to_string();
            assert!(!shown.contains(char::is_control), "{shown:?}");
            assert!(shown.chars().count() < 250, "{shown}");
        }
        Some(other) => panic!("not an error of a text: {other:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn changed_lines(lines in vec(line(), 1..6), end in select(vec!["\n", "\r\n", ""])) {
        let mut text = lines.join(&b'\n');
        text.extend(end.bytes());
        assert_readable_or_refused(&text);
        if !text.starts_with(b"\x93") {
            let _ = Recording::read_from("f", Box::new(Cursor::new(text)));
        }
    }

    #[test]
    fn bytes_at_random(bytes in vec(any::<u8>(), 0..300)) {
        assert_readable_or_refused(&bytes);
    }
}

#[test]
fn every_good_line_is_read() {
    for line in LINES {
        let mut reader = text::Reader::new("f", Box::new(Cursor::new(format!("{line}\n"))));
        let read = reader.by_ref().collect::<Result<Vec<_>, _>>();
        let events = read.expect(line).len();
        let others = reader.ignored().len();
        let expected = usize::from(!line.starts_with('#'));
        assert_eq!(events + others, expected, "{line}");
        assert_eq!(others, usize::from(line.contains("kmalloc")), "{line}");
    }
}
