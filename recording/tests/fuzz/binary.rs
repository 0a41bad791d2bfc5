//! Fuzzes the binary format: changed bytes with recomputed checksums, chunks in any order, and
//! columns of any numbers.

use std::sync::LazyLock;

use flate2::Crc;
use plimsoll_recording::format::CHUNK_EVENTS_MAX;
use plimsoll_recording::{Event, Header, ReadError, Reader, Recording, Symbol, What, Writer};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// The number of bytes before the first chunk.
pub(crate) const PREAMBLE_BYTES: usize = 16;
/// The number of bytes before the body of a chunk: tag, length, checksum.
const HEAD_BYTES: usize = 12;

/// A chunk without its length and checksum, which [`file`] computes.
#[derive(Clone, Debug)]
pub(crate) struct Chunk {
    pub(crate) tag: [u8; 4],
    pub(crate) body: Vec<u8>,
}

/// A valid file with every kind of event. Its chunks have eight events, so that most columns are
/// too short to be compressed, and a changed byte changes a number.
static GOOD: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let header = Header {
        release: "6.12.0".to_owned(),
        cpus: 2,
        texts: vec![("zoneinfo before".to_owned(), "Node 0\n".to_owned())],
        symbols: ["a", "b", "c"].map(str::to_owned).to_vec(),
        ..Header::default()
    };
    let mut writer = Writer::new(Vec::new(), &header).expect("memory takes all");
    for (nth, what) in (0..3).flat_map(whats).enumerate() {
        let nth = nth as u64;
        let event = Event {
            time_ns: 1_000_000 + nth * 700,
            cpu: u32::from(nth.is_multiple_of(3)),
            pid: 7,
            what,
        };
        writer.push(event).expect("memory takes all");
        if nth % 8 == 7 {
            writer.flush().expect("memory takes all");
        }
    }
    let mut last = header.clone();
    last.lost = vec![(0, 3), (1, 4)];
    writer.finish(&last).expect("memory takes all").0
});

/// Returns events of every kind. The page frame numbers depend on `round`, so that the same numbers
/// recur.
#[rustfmt::skip]
fn whats(round: u64) -> Vec<What> {
    let (pfn, order, mobility, function) = (64 + round, 0, Some(1), Symbol(1));
    vec![
        What::Alloc { pfn, order, mobility, gfp: Some(0xdc0) },
        What::AllocFailed { order: 9, mobility: None },
        What::Free { pfn, order },
        What::FreeBatched { pfn },
        What::Free { pfn: 65, order },
        What::PcpuDrain { pfn, order, mobility },
        What::ZoneLocked { pfn: 66, order, mobility: 1, percpu_refill: true },
        What::Alloc { pfn: 66, order, mobility, gfp: None },
        What::ExtFrag { pfn, order, fallback_order: 9, mobility: 0, fallback: 1, claimed: true },
        What::BulkAlloc { pages: 31 },
        What::WorkQueued { work: 9, function },
        What::WorkStart { work: 9, function },
        What::WorkEnd { work: 9, function },
        What::TimerStart { timer: 8, function, expires: 90, bucket: Some(96), now: 70, flags: 2 },
        What::TimerExpire { timer: 8, function, now: 96 },
        What::ContentionBegin { lock: 5, flags: 1, stack: vec![function, Symbol(2)] },
        What::ContentionEnd { lock: 5, result: -4 },
        What::RssStat { mm: 3, current: true, member: 1, bytes: -4096 },
        What::CounterAdd { counter: 3, amount: -512, batch: 32 },
        What::MarkVictim { victim: 7 },
        What::WakeReaper { victim: 7 },
        What::StartReaping { victim: 7 },
        What::FinishReaping { victim: 7 },
        What::SkipReaping { victim: 7 },
        What::ExitMmap,
        What::Unmap { start: 4096, end: 8192 },
        What::Mark("plimsoll: begin".to_owned()),
        What::KswapdWake { node: 0, zone: 1, order: 0 },
        What::KswapdDone,
        What::KswapdSleep { node: 0 },
        What::WakeupKswapd { node: 0, zone: 1, order: 0, gfp: 0xdc0 },
        What::DirectReclaimBegin { order: 3, gfp: 0xdc0 },
        What::DirectReclaimEnd { pages: 32 },
    ]
}

/// Splits a valid file into its chunks.
fn chunks(bytes: &[u8]) -> Vec<Chunk> {
    let mut rest = &bytes[PREAMBLE_BYTES..];
    let mut chunks = Vec::new();
    while let Some((head, after)) = rest.split_first_chunk::<HEAD_BYTES>() {
        let length = u32::from_le_bytes(head[4..8].try_into().expect("four bytes"));
        let (body, after) = after.split_at(length as usize);
        chunks.push(Chunk {
            tag: head[..4].try_into().expect("four bytes"),
            body: body.to_vec(),
        });
        rest = after;
    }
    chunks
}

/// Returns a file of these chunks, with the right lengths and checksums.
pub(crate) fn file(chunks: &[Chunk]) -> Vec<u8> {
    let mut bytes = GOOD[..PREAMBLE_BYTES].to_vec();
    for Chunk { tag, body } in chunks {
        let length = u32::try_from(body.len()).expect("a small body");
        let head = [*tag, length.to_le_bytes()].concat();
        let mut sum = Crc::new();
        sum.update(&head);
        sum.update(body);
        bytes.extend(head);
        bytes.extend(sum.sum().to_le_bytes());
        bytes.extend(body);
    }
    bytes
}

pub(crate) fn chunk(tag: &[u8; 4], parts: &[Vec<u8>]) -> Chunk {
    let (tag, body) = (*tag, parts.concat());
    Chunk { tag, body }
}

/// Returns `value` encoded with seven bits per byte, the low bits first.
pub(crate) fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    bytes.push(value.to_le_bytes()[0]);
    bytes
}

/// Returns the column with this number, whose bytes `plain` are stored uncompressed.
pub(crate) fn column(number: u64, plain: &[u8]) -> Vec<u8> {
    let length = varint(plain.len() as u64);
    [varint(number), length.clone(), length, plain.to_vec()].concat()
}

/// Reads all of `bytes` chunk by chunk. Asserts that no chunk has too many events, and that no call
/// panics, not even a call after an error.
pub(crate) fn read(bytes: &[u8]) -> Result<Recording, ReadError> {
    let mut reader = Reader::new("f", bytes)?;
    let mut events = Vec::new();
    loop {
        match reader.next_events() {
            Ok(Some(more)) => {
                assert!(more.len() as u64 <= CHUNK_EVENTS_MAX, "{}", more.len());
                events.extend(more);
            }
            Ok(None) => break,
            Err(error) => {
                // A caller may read on after a damaged chunk, so these calls must not panic either.
                let _ = reader.next_events();
                let _ = reader.finish();
                return Err(error);
            }
        }
    }
    let (header, _) = reader.finish();
    let mut recording = Recording { header, events };
    recording.sort();
    Ok(recording)
}

/// Asserts that reading `bytes` returns either an error that says what to do, or events that can be
/// written and read again.
pub(crate) fn assert_readable_or_refused(bytes: &[u8]) {
    match read(bytes) {
        Ok(recording) => {
            let (again, _) = recording.write(Vec::new()).expect("memory takes all");
            let back = read(&again).expect("it was just written");
            assert_eq!(back.events, recording.events);
            assert_eq!(back.header.symbols, recording.header.symbols);
        }
        Err(ReadError::Damaged { offset, .. }) => {
            assert!(offset <= bytes.len() as u64, "{offset}");
        }
        Err(
            ReadError::NotARecording { .. }
            | ReadError::ForeignEndianness { .. }
            | ReadError::Newer { .. },
        ) => {}
        Err(other) => panic!("not an error of the format: {other:?}"),
    }
}

/// One change of a list of chunks.
#[derive(Clone, Debug)]
enum Edit {
    Set(Index, Index, u8),
    Insert(Index, Index, Vec<u8>),
    Cut(Index, Index),
    Repeat(Index, Index),
    Swap(Index, Index),
    Remove(Index),
}

fn edit() -> impl Strategy<Value = Edit> {
    let place = any::<Index>;
    prop_oneof![
        4 => (place(), place(), any::<u8>()).prop_map(|(at, byte, to)| Edit::Set(at, byte, to)),
        1 => (place(), place(), vec(any::<u8>(), 1..4))
            .prop_map(|(at, byte, new)| Edit::Insert(at, byte, new)),
        1 => (place(), place()).prop_map(|(at, byte)| Edit::Cut(at, byte)),
        1 => (place(), place()).prop_map(|(from, to)| Edit::Repeat(from, to)),
        1 => (place(), place()).prop_map(|(one, other)| Edit::Swap(one, other)),
        1 => place().prop_map(Edit::Remove),
    ]
}

fn apply(chunks: &mut Vec<Chunk>, edit: &Edit) {
    let count = chunks.len();
    match edit {
        _ if count == 0 => {}
        Edit::Set(at, byte, to) => {
            let body = &mut chunks[at.index(count)].body;
            if !body.is_empty() {
                let byte = byte.index(body.len());
                body[byte] = *to;
            }
        }
        Edit::Insert(at, byte, new) => {
            let body = &mut chunks[at.index(count)].body;
            let byte = byte.index(body.len() + 1);
            body.splice(byte..byte, new.iter().copied());
        }
        Edit::Cut(at, byte) => {
            let body = &mut chunks[at.index(count)].body;
            body.truncate(byte.index(body.len() + 1));
        }
        Edit::Repeat(from, to) => {
            let again = chunks[from.index(count)].clone();
            chunks.insert(to.index(count + 1), again);
        }
        Edit::Swap(one, other) => chunks.swap(one.index(count), other.index(count)),
        Edit::Remove(at) => drop(chunks.remove(at.index(count))),
    }
}

/// Generates numbers for columns. Most are zeros, which every column accepts. Some are at a
/// boundary of a table's indices, of a field's width, or of a sign.
fn number() -> impl Strategy<Value = u64> {
    let ends = vec![
        0xff,
        0x100,
        0xffff,
        0x1_0000,
        u64::from(u32::MAX),
        1 << 32,
        u64::MAX / 2,
        u64::MAX,
    ];
    prop_oneof![90 => Just(0), 8 => 1..4_u64, 1 => select(ends), 1 => any::<u64>()]
}

/// Generates an `EVNT` chunk with a few events. After the column of kinds, the chunk has each other
/// column and one unknown column, with up to 79 numbers each.
fn events() -> impl Strategy<Value = Chunk> {
    let numbers = || vec(number(), 0..80);
    let kinds = vec(prop_oneof![60 => 1..32_u64, 1 => number()], 0..8);
    (number(), kinds, vec(numbers(), 29), 0..8_u64).prop_map(|(cpu, kinds, columns, more)| {
        let count = kinds.len() as u64 + u64::from(more == 0);
        let mut parts = vec![varint(cpu), varint(count), varint(5), of(0, &kinds)];
        let columns = columns.iter().enumerate().skip(1);
        parts.extend(columns.map(|(at, numbers)| of(at as u64, numbers)));
        chunk(b"EVNT", &parts)
    })
}

fn of(column_number: u64, numbers: &[u64]) -> Vec<u8> {
    let plain: Vec<u8> = numbers.iter().flat_map(|number| varint(*number)).collect();
    column(column_number, &plain)
}

/// Generates a column of pairs of a name and a value, like the column of the header.
fn pairs() -> impl Strategy<Value = Vec<u8>> {
    let names = vec!["lost", "hz", "cpus", "recorded", "text x", "text ", "new"];
    let values = vec![
        "",
        "0",
        "4294967296",
        "1 18446744073709551615",
        "2 18446744073709551615",
        "5",
    ];
    let name = prop_oneof![4 => select(names).prop_map(str::to_owned), 1 => any::<String>()];
    let value = prop_oneof![4 => select(values).prop_map(str::to_owned), 1 => any::<String>()];
    vec((name, value), 0..6).prop_map(|pairs| {
        let texts = pairs.into_iter().flat_map(|(name, value)| [name, value]);
        let plain: Vec<u8> = texts.flat_map(|text| text_of(&text)).collect();
        column(22, &plain)
    })
}

pub(crate) fn text_of(text: &str) -> Vec<u8> {
    [varint(text.len() as u64), text.as_bytes().to_vec()].concat()
}

// When a reader reads the first page frame number, it allocates 25 MB for the tables from which it
// predicts page frame numbers. So this test reads few files.
proptest! {
    #![proptest_config(ProptestConfig::with_cases(80))]

    #[test]
    fn changed_chunks_with_right_checksums(edits in vec(edit(), 1..6), end: Index, cut: bool) {
        let mut chunks = chunks(&GOOD);
        for edit in &edits {
            apply(&mut chunks, edit);
        }
        let mut bytes = file(&chunks);
        if cut {
            bytes.truncate(end.index(bytes.len() + 1));
        }
        assert_readable_or_refused(&bytes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn columns_of_any_numbers(first in vec(events(), 1..3)) {
        let good = chunks(&GOOD);
        // The file begins with the header and the names of the valid file, so that the events'
        // symbols are known.
        let all = [&good[..2], &first].concat();
        assert_readable_or_refused(&file(&all));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn bytes_at_random(bytes in vec(any::<u8>(), 0..200), keep in 0..40_usize) {
        assert_readable_or_refused(&bytes);
        assert_readable_or_refused(&[&GOOD[..keep], &bytes[..]].concat());
    }

    #[test]
    fn headers_of_any_fields(first in pairs(), last in pairs(), count in 0..2_u64) {
        let chunks = [chunk(b"HEAD", &[first]), chunk(b"DONE", &[varint(count), last])];
        assert_readable_or_refused(&file(&chunks));
    }
}

#[test]
fn a_good_file_of_every_kind_is_read() {
    let read = read(&GOOD).expect("a good file");
    assert_eq!(read.events.len(), 3 * whats(0).len());
    assert_eq!(file(&chunks(&GOOD)), *GOOD, "taken apart and put together");
}
