//! The bytes of a file: what they are, and that they are few.

use plimsoll_recording::{Event, Header, Recording, What};

/// The body of the chunk that begins at this byte, and where the next chunk begins.
fn chunk(bytes: &[u8], at: usize) -> (&[u8], usize) {
    let length = bytes[at + 4..at + 8].try_into().expect("four bytes");
    let end = at + 12 + u32::from_le_bytes(length) as usize;
    (&bytes[at + 12..end], end)
}

/// A file that version 3 wrote must mean the same for ever, and a writer and a reader that change together
/// would not notice. The kinds of before are held by recordings in the repository.
#[test]
fn events_of_reclaim_have_these_bytes_in_version_3() {
    let whats = [
        What::WakeupKswapd {
            node: 1,
            zone: 2,
            order: 3,
            gfp: 4,
        },
        What::KswapdWake {
            node: 1,
            zone: 5,
            order: 6,
        },
        What::DirectReclaimBegin { order: 7, gfp: 4 },
        What::DirectReclaimEnd { pages: 9 },
        What::KswapdDone,
        What::KswapdSleep { node: 1 },
    ];
    let event = |what| Event {
        time_ns: 50,
        cpu: 0,
        pid: 8,
        what,
    };
    let recording = Recording {
        header: Header::default(),
        events: whats.map(event).to_vec(),
    };
    let (bytes, _) = recording.write(Vec::new()).expect("memory takes all");
    let (_, second) = chunk(&bytes, 16);
    let (events, _) = chunk(&bytes, second);
    let expected: [&[u8]; 8] = [
        // CPU, how many events, time of the first.
        &[0, 6, 50],
        // Each column: number, length, length as it is packed. Kinds and times.
        &[0, 6, 6, 29, 26, 30, 31, 27, 28],
        &[1, 6, 6, 0, 0, 0, 0, 0, 0],
        // Tables: 0 and a new number, or the place of one that was seen. Processes.
        &[2, 7, 7, 0, 8, 1, 1, 1, 1, 1],
        // Zone and order, 16 bits each, seven of them in a byte, and an order alone.
        &[8, 10, 10, 0, 0x82, 0x80, 0x0c, 0, 0x85, 0x80, 0x18, 0, 7],
        // Flags of an allocation, pages, nodes.
        &[9, 3, 3, 0, 4, 1],
        &[10, 1, 1, 9],
        &[27, 4, 4, 0, 1, 1, 1],
    ];
    assert_eq!(events, expected.concat());
}

#[test]
fn events_that_are_alike_take_few_bytes() {
    let event = |nth: u64| Event {
        time_ns: 1000 * nth,
        cpu: 0,
        pid: 7,
        what: What::BulkAlloc { pages: 31 },
    };
    let recording = Recording {
        header: Header::default(),
        events: (0..10_000).map(event).collect(),
    };
    // As numbers they take five bytes each.
    let (bytes, _) = recording.write(Vec::new()).expect("memory takes all");
    let bytes = bytes.len();
    assert!(bytes < 1000, "{bytes}");
}
