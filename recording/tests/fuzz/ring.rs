//! Fuzzes the decoder of ring buffers: sub-buffers with arbitrary entries, and formats of kernels
//! that do not exist.

use plimsoll_recording::header::LOST_MAX;
use plimsoll_recording::ring::{Decoder, Formats};
use plimsoll_recording::{Event, Kallsyms, What};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// The names of the events, in the order of their numbers from 1: all known names, one unknown
/// name, and the name of the call chain.
const NAMES: [&str; 36] = [
    "mm_page_alloc",
    "mm_page_free",
    "mm_page_free_batched",
    "mm_page_pcpu_drain",
    "mm_page_alloc_zone_locked",
    "mm_page_alloc_extfrag",
    "bulkret",
    "workqueue_queue_work",
    "workqueue_execute_start",
    "workqueue_execute_end",
    "timer_start",
    "timer_expire_entry",
    "contention_begin",
    "contention_end",
    "rss_stat",
    "counter_add",
    "mark_victim",
    "wake_reaper",
    "start_task_reaping",
    "finish_task_reaping",
    "skip_task_reaping",
    "exit_mmap",
    "unmap",
    "print",
    "mm_vmscan_kswapd_wake",
    "kswapddone",
    "mm_vmscan_kswapd_sleep",
    "mm_vmscan_wakeup_kswapd",
    "mm_vmscan_direct_reclaim_begin",
    "mm_vmscan_direct_reclaim_end",
    "unknown",
    "kernel_stack",
    "contention_begin",
    "kernel_stack",
    "contention_begin",
    "kernel_stack",
];

/// The fields that every event has in this test, four bytes each. No real event has all of them.
const FIELDS: [&str; 13] = [
    "pfn",
    "order",
    "flags",
    "pid",
    "nid",
    "zid",
    "mm_id",
    "curr",
    "member",
    "batch",
    "ret",
    "struct",
    "alloc_order",
];
const LONG_FIELDS: [&str; 12] = [
    "work",
    "timer",
    "function",
    "expires",
    "bucket_expiry",
    "now",
    "lock_addr",
    "counter",
    "amount",
    "gfp_flags",
    "start",
    "end",
];

const SMALL_FIELDS: [&str; 7] = [
    "nr_reclaimed",
    "migratetype",
    "alloc_migratetype",
    "fallback_migratetype",
    "fallback_order",
    "change_ownership",
    "percpu_refill",
];

/// Returns the `format` files of events with these names, numbered from 1, and
/// `events/header_page`.
fn texts(names: &[&str]) -> (String, String) {
    let field = |kind: &str, offset: usize, size: usize, signed: u8| {
        format!("\tfield:{kind};\toffset:{offset};\tsize:{size};\tsigned:{signed};\n")
    };
    let mut fields = field("unsigned short common_type", 0, 2, 0);
    fields += &field("int common_pid", 4, 4, 1);
    for (nth, name) in FIELDS.iter().enumerate() {
        let signed = u8::from(nth % 2 == 0);
        fields += &field(&format!("int {name}"), 8 + 4 * nth, 4, signed);
    }
    for (nth, name) in LONG_FIELDS.iter().enumerate() {
        fields += &field(&format!("unsigned long {name}"), 8 + nth, 8, 0);
    }
    fields += &field("long size", 8, 4, 1);
    fields += &field("unsigned long caller[8]", 16, 64, 0);
    fields += &field("char buf[]", 12, 0, 0);
    for name in SMALL_FIELDS {
        fields += &field(&format!("int {name}"), 9, 1, 0);
    }
    let event = |(nth, name): (usize, &&str)| {
        let number = nth + 1;
        format!("name: {name}\nID: {number}\nformat:\n{fields}\nprint fmt: \"\"\n")
    };
    let events = names.iter().enumerate().map(event).collect();
    let mut page = field(" u64 timestamp", 0, 8, 0);
    page += &field(" local_t commit", 8, 8, 1);
    page += &field(" char data", 16, 4080, 0);
    (events, page)
}

fn decoder(events: &str, page: &str) -> Decoder {
    let mut formats = Formats::default();
    let _ = formats.header_page(page);
    let _ = formats.add(events);
    let kallsyms = "ffffffff81000000 T outer\nffffffff81001000 t inner\n";
    Decoder::new(formats, Kallsyms::parse(kallsyms))
}

/// Generates one entry of a sub-buffer, for an event whose number is at most `most`.
fn entry(most: u16) -> impl Strategy<Value = Vec<u8>> {
    let small = prop_oneof![3 => 0..4_u8, 1 => any::<u8>()];
    let fields = || vec(small.clone(), 0..96);
    let event =
        (1..=most, any::<bool>(), fields(), 0..3_u32).prop_map(|(number, long, fields, step)| {
            let mut payload = number.to_le_bytes().to_vec();
            payload.extend([0, 0, 7, 0, 0, 0]);
            payload.extend(fields);
            payload.resize(payload.len().next_multiple_of(4), 0);
            let words = u32::try_from(payload.len() / 4).expect("short");
            let head = if long || words > 28 {
                let length = words * 4 + 4;
                [(step << 5).to_le_bytes(), length.to_le_bytes()].concat()
            } else {
                (step << 5 | words).to_le_bytes().to_vec()
            };
            [head, payload].concat()
        });
    let two_words = (29..32_u32, any::<u32>(), any::<u32>()).prop_map(|(kind, low, high)| {
        let high = if kind == 29 { high % 64 } else { high };
        [(low << 5 | kind).to_le_bytes(), high.to_le_bytes()].concat()
    });
    prop_oneof![8 => event, 1 => two_words, 1 => vec(any::<u8>(), 0..9)]
}

/// Generates a sub-buffer. Its header has a right or wrong data length, and a number of lost events
/// follows the data.
fn sub_buffer(most: u16) -> impl Strategy<Value = Vec<u8>> {
    let time_ns = prop_oneof![0..1000_u64, any::<u64>()];
    let flags =
        prop_oneof![2 => Just(0), 1 => Just(1 << 31), 3 => Just(3 << 30), 1 => any::<u64>()];
    let lost = prop_oneof![0..9_u64, Just(u64::MAX), any::<u64>()];
    let changed = vec((any::<Index>(), any::<u8>()), 0..3);
    (time_ns, flags, vec(entry(most), 0..12), lost, changed).prop_map(
        |(time_ns, flags, entries, lost, changed)| {
            let data = entries.concat();
            let mut bytes = time_ns.to_le_bytes().to_vec();
            bytes.extend((data.len() as u64 | flags).to_le_bytes());
            bytes.extend(data);
            bytes.extend(lost.to_le_bytes());
            for (at, to) in changed {
                let at = at.index(bytes.len());
                bytes[at] = to;
            }
            bytes
        },
    )
}

/// Decodes sub-buffers one after the other, and asserts that the events take no more memory than
/// the sub-buffers allow.
fn decode(decoder: &mut Decoder, sub_buffers: &[Vec<u8>]) {
    for (nth, bytes) in sub_buffers.iter().enumerate() {
        let mut events = Vec::new();
        let cpu = u32::from(nth % 2 == 0);
        let decoded = decoder.sub_buffer(cpu, bytes, &mut events);
        if let Err(error) = decoded {
            assert!(error.at <= bytes.len(), "{error}");
            assert_eq!(error.cpu, cpu);
        }
        // An event takes at least eight bytes, and an address in a call chain at least four. One
        // byte of text decodes to at most three bytes.
        assert!(events.len() <= bytes.len() / 8, "{}", events.len());
        let kept = |event: &Event| match &event.what {
            What::ContentionBegin { stack, .. } => stack.len() * 4,
            What::Mark(text) => text.len() / 3,
            _ => 0,
        };
        let kept: usize = events.iter().map(kept).sum();
        assert!(kept <= bytes.len(), "{kept} of {}", bytes.len());
        assert!(decoder.lost().values().all(|lost| *lost <= LOST_MAX));
        let symbols = decoder.symbols().len();
        for event in &events {
            if let What::ContentionBegin { stack, .. } = &event.what {
                assert!(stack.iter().all(|symbol| (symbol.0 as usize) < symbols));
            }
        }
    }
}

/// Replaces parts of the text of a tracefs file. Parts end at blanks, tabs, colons, semicolons and
/// line ends; each edit chooses one part and gives its replacement.
fn changed(text: &str, edits: &[(Index, &'static str)]) -> String {
    let mut parts: Vec<&str> = text.split_inclusive(['\t', ';', ':', '\n', ' ']).collect();
    for (at, to) in edits {
        let at = at.index(parts.len());
        parts[at] = to;
    }
    parts.concat()
}

fn edits() -> impl Strategy<Value = Vec<(Index, &'static str)>> {
    let pieces = [
        "",
        ";",
        "\n",
        "0;",
        "1;",
        "7;",
        "8;",
        "9;",
        "4096;",
        "1048575;",
        "1048576;",
        "-1;",
        "18446744073709551615;",
        "65535\n",
        "65536\n",
        "field:",
        "size:",
        "offset:",
        "[",
        "] ",
        "name: print\n",
        "ID: 3\n",
        "é",
    ];
    vec((any::<Index>(), select(pieces.to_vec())), 1..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn sub_buffers_of_any_entries(sub_buffers in vec(sub_buffer(40), 1..5)) {
        let (events, page) = texts(&NAMES);
        decode(&mut decoder(&events, &page), &sub_buffers);
    }

    #[test]
    fn changed_formats(
        of_events in edits(),
        of_page in edits(),
        first in 0..NAMES.len() - 1,
        sub_buffers in vec(sub_buffer(2), 1..4),
    ) {
        // The texts describe only two kinds of events, so that many edits change fields that the
        // decoder reads.
        let (events, page) = texts(&NAMES[first..first + 2]);
        decode(&mut decoder(&changed(&events, &of_events), &page), &sub_buffers);
        decode(&mut decoder(&events, &changed(&page, &of_page)), &sub_buffers);
    }

    #[test]
    fn kallsyms_of_any_text(text: String, line in "[0-9a-f]{0,20} [tTwWi] [a-z.]{0,9}", address: u64) {
        for text in [&text, &line, &format!("{line}\n{text}\n{line}")] {
            let kallsyms = Kallsyms::parse(text);
            let _ = kallsyms.name(address);
            let extents = kallsyms.extents("a");
            prop_assert!(extents.iter().all(|(begin, end)| begin <= end));
        }
    }
}

#[test]
fn the_formats_give_most_events_a_meaning() {
    let (formats, page) = texts(&NAMES);
    let mut decoder = decoder(&formats, &page);
    let count = u16::try_from(NAMES.len()).expect("few");
    let read = |number: u16| {
        let payload = [&number.to_le_bytes()[..], &[0, 0, 7, 0, 0, 0], &[1; 92]].concat();
        let entry = [25_u32.to_le_bytes().to_vec(), payload].concat();
        let length = entry.len() as u64;
        let bytes = [&5_u64.to_le_bytes()[..], &length.to_le_bytes(), &entry].concat();
        let mut events = Vec::new();
        let decoded = decoder.sub_buffer(0, &bytes, &mut events);
        usize::from(decoded.is_ok()) * events.len()
    };
    let events: usize = (1..=count).map(read).sum();
    assert!(events >= 20, "{events} of {count}");
}
