//! Tests the limits on the memory that a small file can make a reader use, with files that would
//! exceed the limits.

use std::io::{Cursor, Write};

use flate2::Compression;
use flate2::write::DeflateEncoder;
use plimsoll_recording::format::{CHUNK_BYTES_MAX, CHUNK_EVENTS_MAX};
use plimsoll_recording::header::LOST_MAX;
use plimsoll_recording::text::LINE_BYTES_MAX;
use plimsoll_recording::{Event, Header, ReadError, Recording, Warning, What, Writer};

use super::binary::{Chunk, chunk, column, file, read, text_of, varint};

/// Returns the column with this number, whose bytes `plain` are stored compressed.
fn packed(number: u64, plain: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(plain).expect("memory takes all");
    let bytes = encoder.finish().expect("memory takes all");
    let lengths = [plain.len() as u64, bytes.len() as u64].map(varint);
    [varint(number), lengths.concat(), bytes].concat()
}

/// Returns a chunk of `count` events of a kind that has no fields.
fn events(count: u64) -> Chunk {
    let length = usize::try_from(count).expect("few");
    let kinds = packed(0, &vec![23; length]);
    let times = packed(1, &vec![0; length]);
    // The first event puts a number into the table of processes; all other events refer to the
    // index of this number.
    let processes = packed(2, &[vec![0, 7], vec![1; length - 1]].concat());
    let prologue = [varint(0), varint(count), varint(5)].concat();
    chunk(b"EVNT", &[prologue, kinds, times, processes])
}

/// Returns a file of a header, `chunks`, and an end that states that the file has `count` events.
fn whole(chunks: Vec<Chunk>, count: u64) -> Vec<u8> {
    let mut all = vec![chunk(b"HEAD", &[])];
    all.extend(chunks);
    all.push(chunk(b"DONE", &[varint(count)]));
    file(&all)
}

fn damage(bytes: &[u8]) -> &'static str {
    match read(bytes) {
        Err(ReadError::Damaged { what, .. }) => what,
        other => panic!("{:?}", other.map(|read| read.events.len())),
    }
}

#[test]
fn a_chunk_has_as_many_events_as_are_allowed_and_no_more() {
    let most = CHUNK_EVENTS_MAX;
    let good = read(&whole(vec![events(most), events(most)], 2 * most)).expect("two full chunks");
    assert_eq!(good.events.len() as u64, 2 * most);
    assert_eq!(
        damage(&whole(vec![events(most + 1)], most + 1)),
        "its events make no sense"
    );
}

#[test]
fn a_chunk_unpacks_to_as_many_bytes_as_are_allowed_and_no_more() {
    let half = vec![0; CHUNK_BYTES_MAX / 2];
    let prologue = [varint(0), varint(0), varint(5)].concat();
    let columns = |more: &[u8]| {
        let halves = [packed(3, &half), packed(4, &half)].concat();
        chunk(b"EVNT", &[prologue.clone(), halves, more.to_vec()])
    };
    let good = read(&whole(vec![columns(&[])], 0)).expect("as many as are allowed");
    assert_eq!(good.events, []);
    let bad = whole(vec![columns(&column(5, &[0]))], 0);
    assert!(bad.len() < CHUNK_BYTES_MAX / 100, "a small file");
    assert_eq!(damage(&bad), "its events make no sense");
    // One column occurs three times. The reader uses only the last copy, but unpacks each copy.
    let again = packed(3, &half).repeat(3);
    let bad = whole(vec![chunk(b"EVNT", &[prologue.clone(), again])], 0);
    assert_eq!(damage(&bad), "its events make no sense");
}

#[test]
fn a_chunk_of_names_has_as_many_as_are_allowed_and_no_more() {
    let names = |count: u64| {
        let empty = vec![0; usize::try_from(count).expect("few")];
        whole(
            vec![chunk(b"NAME", &[varint(count), packed(21, &empty)])],
            0,
        )
    };
    let good = read(&names(CHUNK_EVENTS_MAX)).expect("as many as are allowed");
    assert_eq!(good.header.symbols.len() as u64, CHUNK_EVENTS_MAX);
    assert_eq!(
        damage(&names(CHUNK_EVENTS_MAX + 1)),
        "its names make no sense"
    );
    let few = chunk(
        b"NAME",
        &[varint(u64::MAX), column(21, &text_of("a function"))],
    );
    assert_eq!(damage(&whole(vec![few], 0)), "its names make no sense");
}

#[test]
fn lost_events_that_no_kernel_can_have_lost_are_few_enough_to_add_up() {
    let text = |cpu: u32| [text_of("lost"), text_of(&format!("{cpu} {}", u64::MAX))].concat();
    let fields = [text(0), text(1), text(2)].concat();
    let end = chunk(b"DONE", &[varint(0), column(22, &fields)]);
    let bytes = file(&[chunk(b"HEAD", &[]), end]);
    let contents = Recording::read_from("f", Box::new(Cursor::new(bytes))).expect("a whole file");
    let lost = [0, 1, 2].map(|cpu| (cpu, LOST_MAX));
    assert_eq!(contents.recording.header.lost, lost);
    let warned = Warning::Lost {
        file: "f".to_owned(),
        events: 3 * LOST_MAX,
        cpus: 3,
    };
    assert_eq!(contents.warnings, [warned]);
}

#[test]
fn the_writer_keeps_to_the_limits() {
    let event = |nth: u64, text: &str| Event {
        time_ns: nth,
        cpu: 0,
        pid: 0,
        what: What::Mark(text.to_owned()),
    };
    let long = "x".repeat(CHUNK_BYTES_MAX / 3);
    let many = usize::try_from(CHUNK_EVENTS_MAX).expect("few") + 1;
    let recording = Recording {
        header: Header {
            symbols: (0..many).map(|nth| format!("f{nth}")).collect(),
            ..Header::default()
        },
        events: (0..4).map(|nth| event(nth, &long)).collect(),
    };
    let (bytes, _) = recording.write(Vec::new()).expect("memory takes all");
    let back = read(&bytes).expect("it was just written");
    assert!(back == recording, "four long notes and many names");

    let longer = "x".repeat(CHUNK_BYTES_MAX / 2 + 1);
    let mut writer = Writer::new(Vec::new(), &Header::default()).expect("memory takes all");
    let error = writer
        .push(event(0, &longer))
        .expect_err("no reader takes it");
    assert!(error.to_string().contains("32 MiB"), "{error}");
}

#[test]
fn a_line_of_a_text_is_no_longer_than_allowed() {
    let line = |bytes: usize| {
        let text = format!("# {}\n", "x".repeat(bytes - 3)).into_bytes();
        Recording::read_from("f", Box::new(Cursor::new(text)))
    };
    let good = line(LINE_BYTES_MAX).expect("a comment");
    assert_eq!(good.lines, 1);
    let error = line(LINE_BYTES_MAX + 1).expect_err("too long").to_string();
    assert!(
        error.starts_with("f:1: expected a line of at most 1 MiB, found `# xxx"),
        "{error}"
    );
    assert!(error.len() < 300, "{}", error.len());
}
