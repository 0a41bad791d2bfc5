//! Tests ring buffers that are built word by word as the kernel builds them, and buffers with any
//! bytes.

use plimsoll_recording::ring::{Decoder, Formats};
use plimsoll_recording::{Event, Kallsyms, What};
use proptest::collection::vec;
use proptest::prelude::*;

const COMMON: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;
";

fn formats() -> Formats {
    let page = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;
\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;
\tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;
";
    let free = "\tfield:unsigned long pfn;\toffset:8;\tsize:8;\tsigned:0;
\tfield:unsigned int order;\toffset:16;\tsize:4;\tsigned:0;
";
    let print = "\tfield:unsigned long ip;\toffset:8;\tsize:8;\tsigned:0;
\tfield:char buf[];\toffset:16;\tsize:0;\tsigned:0;
";
    let begin = "\tfield:void * lock_addr;\toffset:8;\tsize:8;\tsigned:0;
\tfield:unsigned int flags;\toffset:16;\tsize:4;\tsigned:0;
";
    let stack = "\tfield:int size;\toffset:8;\tsize:4;\tsigned:1;
\tfield:unsigned long caller[8];\toffset:16;\tsize:64;\tsigned:0;
";
    let rss = "\tfield:unsigned int mm_id;\toffset:8;\tsize:4;\tsigned:0;
\tfield:unsigned int curr;\toffset:12;\tsize:4;\tsigned:0;
\tfield:int member;\toffset:16;\tsize:4;\tsigned:1;
\tfield:long size;\toffset:24;\tsize:8;\tsigned:1;
";
    let wake = "\tfield:int nid;\toffset:8;\tsize:4;\tsigned:1;
\tfield:int zid;\toffset:12;\tsize:4;\tsigned:1;
\tfield:int order;\toffset:16;\tsize:4;\tsigned:1;
";
    let woken = format!("{wake}\tfield:unsigned long gfp_flags;\toffset:24;\tsize:8;\tsigned:0;\n");
    let direct = "\tfield:int order;\toffset:8;\tsize:4;\tsigned:1;
\tfield:unsigned long gfp_flags;\toffset:16;\tsize:8;\tsigned:0;
";
    let got = "\tfield:unsigned long nr_reclaimed;\toffset:8;\tsize:8;\tsigned:0;\n";
    let all = [
        ("mm_vmscan_kswapd_wake", 10, wake),
        ("mm_vmscan_kswapd_sleep", 11, wake),
        ("mm_vmscan_wakeup_kswapd", 12, woken.as_str()),
        ("mm_vmscan_direct_reclaim_begin", 13, direct),
        ("mm_vmscan_direct_reclaim_end", 14, got),
        ("kswapddone", 15, ""),
        ("mm_page_free", 1, free),
        ("print", 5, print),
        ("contention_begin", 6, begin),
        ("kernel_stack", 4, stack),
        ("rss_stat", 7, rss),
    ];
    let mut formats = Formats::default();
    formats.header_page(page).expect("a good text");
    for (name, number, fields) in all {
        let text =
            format!("name: {name}\nID: {number}\nformat:\n{COMMON}\n{fields}\nprint fmt: \"\"\n");
        formats.add(&text).expect("a good text");
    }
    formats
}

fn decoder() -> Decoder {
    let kallsyms = "ffffffff81000000 T outer\nffffffff81001000 t inner\n";
    Decoder::new(formats(), Kallsyms::parse(kallsyms))
}

/// Returns an event's payload: the number of its format, process id 7, then `fields`.
fn payload(number: u16, fields: &[u8]) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.extend([0, 0, 7, 0, 0, 0]);
    bytes.extend(fields);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn free(pfn: u64) -> Vec<u8> {
    let mut fields = pfn.to_le_bytes().to_vec();
    fields.extend(3_u32.to_le_bytes());
    payload(1, &fields)
}

/// Returns a ring-buffer entry whose length is in its first word. Its time is `step` after the time
/// of the preceding entry.
fn short(step: u32, payload: &[u8]) -> Vec<u8> {
    let words = u32::try_from(payload.len() / 4).expect("short");
    assert!((1..29).contains(&words));
    let mut bytes = (step << 5 | words).to_le_bytes().to_vec();
    bytes.extend(payload);
    bytes
}

/// Returns a ring-buffer entry whose length is in its second word. Its time is `step` after the
/// time of the preceding entry.
fn long(step: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (step << 5).to_le_bytes().to_vec();
    let length = u32::try_from(payload.len()).expect("short") + 4;
    bytes.extend(length.to_le_bytes());
    bytes.extend(payload);
    bytes
}

fn two_words(kind: u32, low: u32, high: u32) -> Vec<u8> {
    [(low << 5 | kind).to_le_bytes(), high.to_le_bytes()].concat()
}

fn sub_buffer(time_ns: u64, flags: u64, entries: &[Vec<u8>]) -> Vec<u8> {
    let data = entries.concat();
    let mut bytes = time_ns.to_le_bytes().to_vec();
    bytes.extend((data.len() as u64 | flags).to_le_bytes());
    bytes.extend(data);
    bytes.resize(4096, 0);
    bytes
}

fn decode(bytes: &[u8]) -> (Vec<Event>, Decoder) {
    let mut decoder = decoder();
    let mut events = Vec::new();
    let decoded = decoder.sub_buffer(2, bytes, &mut events);
    decoded.expect("a good sub-buffer");
    (events, decoder)
}

#[test]
fn times_add_up_through_extends_stamps_and_padding() {
    let above = 1 << 60;
    let bytes = sub_buffer(
        above + 1000,
        0,
        &[
            short(0, &free(1)),
            short(7, &free(2)),
            two_words(30, 5, 1),
            short(0, &free(3)),
            // This event was discarded. Eight bytes follow its head, and its time step still
            // advances the time.
            [two_words(29, 11, 8), vec![0xee; 4]].concat(),
            long(4, &free(4)),
            two_words(31, 9, 2),
            short(1, &free(5)),
            // This entry says that the rest of the sub-buffer is empty.
            vec![29, 0, 0, 0, 0xff, 0xff],
        ],
    );
    let (events, _) = decode(&bytes);
    let times: Vec<u64> = events.iter().map(|event| event.time_ns).collect();
    let third = above + 1007 + 5 + (1 << 27);
    let stamp = above + 9 + (2 << 27);
    assert_eq!(
        times,
        [above + 1000, above + 1007, third, third + 15, stamp + 1]
    );
    let pages: Vec<What> = events.into_iter().map(|event| event.what).collect();
    let freed = |pfn| What::Free { pfn, order: 3 };
    assert_eq!(pages, [1, 2, 3, 4, 5].map(freed));
}

#[test]
fn call_chains_belong_to_the_contention_before_them() {
    let mut begin = 0xdead_u64.to_le_bytes().to_vec();
    begin.extend(1_u32.to_le_bytes());
    let mut chain = 3_u32.to_le_bytes().to_vec();
    chain.extend([0; 4]);
    for address in [0xffff_ffff_8100_1010_u64, 0xffff_ffff_8100_0500, 0x10] {
        chain.extend(address.to_le_bytes());
    }
    let bytes = sub_buffer(
        5,
        0,
        &[short(0, &payload(6, &begin)), short(0, &payload(4, &chain))],
    );
    let (events, decoder) = decode(&bytes);
    let What::ContentionBegin { lock, flags, stack } = &events[0].what else {
        panic!("{events:?}");
    };
    assert_eq!((*lock, *flags, events.len()), (0xdead, 1, 1));
    let names: Vec<&str> = stack
        .iter()
        .map(|symbol| decoder.symbols()[symbol.0 as usize].as_str())
        .collect();
    assert_eq!(names, ["inner", "outer", "0x10"]);
}

#[test]
fn a_call_chain_that_follows_no_contention_of_its_thread_is_left_out() {
    let begin = [0xdead_u64.to_le_bytes().to_vec(), vec![1, 0, 0, 0]].concat();
    let begin = short(0, &payload(6, &begin));
    let chain = |address: u64| {
        let words = [1, address];
        let bytes = words.map(u64::to_le_bytes).concat();
        short(0, &payload(4, &bytes))
    };
    let mut of_another = chain(0x20);
    // Change the id of the thread. In an entry it follows the head (4 bytes), the event's number
    // (2), the flags (1) and the count (1).
    of_another[4 + 4] ^= 1;
    let stacks = |buffers: &[&[Vec<u8>]]| -> Vec<usize> {
        let (mut decoder, mut events) = (decoder(), Vec::new());
        for entries in buffers {
            let decoded = decoder.sub_buffer(2, &sub_buffer(5, 0, entries), &mut events);
            decoded.expect("a good sub-buffer");
        }
        let stack = |event: &Event| match &event.what {
            What::ContentionBegin { stack, .. } => stack.len(),
            other => panic!("{other:?}"),
        };
        events.iter().map(stack).collect()
    };
    assert_eq!(stacks(&[&[begin.clone(), chain(0x10)]]), [1]);
    assert_eq!(stacks(&[&[begin.clone(), of_another.clone()]]), [0]);
    assert_eq!(stacks(&[&[begin], &[chain(0x10)]]), [0], "cut between them");
}

#[test]
fn signs_texts_and_unknown_events_are_read() {
    let mut rss = [
        9_u32.to_le_bytes(),
        1_u32.to_le_bytes(),
        1_u32.to_le_bytes(),
    ]
    .concat();
    rss.extend([0; 4]);
    rss.extend((-4096_i64).to_le_bytes());
    let mut print = vec![0; 8];
    print.extend(b"plimsoll: begin\n\0junk");
    let bytes = sub_buffer(
        5,
        0,
        &[
            short(0, &payload(7, &rss)),
            long(0, &payload(5, &print)),
            short(0, &payload(999, &[])),
        ],
    );
    let (events, decoder) = decode(&bytes);
    let what: Vec<What> = events.into_iter().map(|event| event.what).collect();
    let changed = What::RssStat {
        mm: 9,
        current: true,
        member: 1,
        bytes: -4096,
    };
    assert_eq!(what, [changed, What::Mark("plimsoll: begin".to_owned())]);
    assert_eq!(decoder.unknown()["event 999"], 1);
}

#[test]
fn reclaim_is_read() {
    let ints = |numbers: &[u32]| -> Vec<u8> {
        let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
        bytes.collect()
    };
    // A 64-bit field has two words, the low word first. Here the word before each such field is
    // padding.
    let entries = [
        payload(12, &ints(&[1, 3, 2, 0, 0xdc0, 0])),
        payload(10, &ints(&[1, 3, 2])),
        payload(13, &ints(&[9, 0, 0xdc1, 0])),
        payload(14, &ints(&[32, 0])),
        payload(15, &[]),
        payload(11, &ints(&[1, 0, 0])),
    ];
    let entries: Vec<Vec<u8>> = entries.iter().map(|entry| short(0, entry)).collect();
    let (events, decoder) = decode(&sub_buffer(5, 0, &entries));
    let what: Vec<What> = events.into_iter().map(|event| event.what).collect();
    let expected = [
        What::WakeupKswapd {
            node: 1,
            zone: 3,
            order: 2,
            gfp: 0xdc0,
        },
        What::KswapdWake {
            node: 1,
            zone: 3,
            order: 2,
        },
        What::DirectReclaimBegin {
            order: 9,
            gfp: 0xdc1,
        },
        What::DirectReclaimEnd { pages: 32 },
        What::KswapdDone,
        What::KswapdSleep { node: 1 },
    ];
    assert_eq!(what, expected);
    assert!(decoder.unknown().is_empty());
}

#[test]
fn dropped_events_are_counted_by_cpu() {
    let stored = 1 << 31 | 1 << 30;
    let entry = short(0, &free(1));
    let mut bytes = sub_buffer(5, stored, std::slice::from_ref(&entry));
    bytes[16 + entry.len()..][..8].copy_from_slice(&17_u64.to_le_bytes());
    assert_eq!(decode(&bytes).1.lost()[&2], 17);
    let unsaid = sub_buffer(5, 1 << 31, &[entry]);
    assert_eq!(decode(&unsaid).1.lost()[&2], 1, "it does not say how many");
    let (mut decoder, mut events) = (decoder(), Vec::new());
    for (cpu, bytes) in [(2, &bytes), (3, &unsaid), (2, &unsaid), (2, &bytes)] {
        let decoded = decoder.sub_buffer(cpu, bytes, &mut events);
        decoded.expect("a good sub-buffer");
    }
    let lost: Vec<(u32, u64)> = decoder.lost().clone().into_iter().collect();
    assert_eq!(lost, [(2, 17 + 1 + 17), (3, 1)]);
}

#[test]
fn a_kernel_of_32_bits_has_a_shorter_beginning() {
    let mut formats = formats();
    let page = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;
\tfield: local_t commit;\toffset:8;\tsize:4;\tsigned:1;
\tfield: char data;\toffset:12;\tsize:4084;\tsigned:0;
";
    formats.header_page(page).expect("a good text");
    let entry = short(0, &free(1));
    let mut bytes = 5_u64.to_le_bytes().to_vec();
    bytes.extend(u32::try_from(entry.len()).expect("short").to_le_bytes());
    bytes.extend(&entry);
    let mut events = Vec::new();
    let mut decoder = Decoder::new(formats, Kallsyms::default());
    let decoded = decoder.sub_buffer(0, &bytes, &mut events);
    decoded.expect("a good sub-buffer");
    assert_eq!(events.len(), 1);
}

#[test]
fn what_makes_no_sense_says_where() {
    let error = |bytes: &[u8]| {
        let error = decoder().sub_buffer(2, bytes, &mut Vec::new());
        error.expect_err("it is bad").to_string()
    };
    assert_eq!(
        error(&[0; 3]),
        "a ring buffer page of CPU 2 makes no sense at byte 3: it is shorter than its own beginning"
    );
    let text = error(&sub_buffer(5, 1 << 19, &[]));
    assert!(
        text.ends_with("at byte 8: it holds less than it says"),
        "{text}"
    );
    let cut = sub_buffer(5, 0, &[vec![28, 0, 0, 0]]);
    assert!(error(&cut).ends_with("at byte 16: an entry goes beyond the data"));
    let short_length = sub_buffer(5, 0, &[vec![0, 0, 0, 0, 3, 0, 0, 0]]);
    assert!(error(&short_length).ends_with("an event has a length below 4"));
    let lacking = sub_buffer(5, 0, &[short(0, &payload(1, &[1, 2, 3, 4]))]);
    assert!(error(&lacking).ends_with("an event is shorter than its fields"));
}

#[test]
fn formats_that_make_no_sense_are_told() {
    let mut formats = Formats::default();
    let error = formats.add("name: x\nID: many\n").expect_err("no number");
    assert_eq!(
        error.to_string(),
        "a format of tracefs: expected a number below 65536, found `ID: many`"
    );
    formats
        .add("\tfield:int a;\toffset:x;")
        .expect_err("no offset");
    formats.header_page("nothing").expect_err("no fields");
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in vec(any::<u8>(), 0..300), length in 0..300_u64) {
        let mut decoder = decoder();
        let _ = decoder.sub_buffer(0, &bytes, &mut Vec::new());
        // The header of the second sub-buffer states that `length` bytes of data follow; the data
        // are `bytes`.
        let mut page = 5_u64.to_le_bytes().to_vec();
        page.extend(length.to_le_bytes());
        page.extend(&bytes);
        let _ = decoder.sub_buffer(0, &page, &mut Vec::new());
    }

    #[test]
    fn a_changed_byte_keeps_what_came_before_it(at in 16..100_usize, to: u8) {
        let entries: Vec<Vec<u8>> = (0..4).map(|pfn| short(1, &free(pfn))).collect();
        let mut bytes = sub_buffer(5, 0, &entries);
        bytes[at] = to;
        let mut events = Vec::new();
        let _ = decoder().sub_buffer(0, &bytes, &mut events);
        let whole = (at - 16) / entries[0].len();
        prop_assert!(events.len() >= whole.min(4));
    }

    #[test]
    fn no_text_of_formats_makes_it_panic(text: String) {
        let mut formats = Formats::default();
        let _ = formats.add(&text);
        let _ = formats.add(&format!("name: a\nID: 1\n\tfield:{text};\toffset:{text};"));
        let _ = formats.header_page(&text);
    }
}
