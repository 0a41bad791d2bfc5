//! Tests the exact bytes of a file, and that a file is small.

use plimsoll_recording::{Event, Header, Recording, What};

/// Returns the body of the chunk that begins at the byte `at`, and the offset of the next chunk.
fn chunk(bytes: &[u8], at: usize) -> (&[u8], usize) {
    let length = bytes[at + 4..at + 8].try_into().expect("four bytes");
    let end = at + 12 + u32::from_le_bytes(length) as usize;
    (&bytes[at + 12..end], end)
}

/// Every later version must read a file of version 3 as this version does. A test that writes and
/// then reads would miss a change of both the writer and the reader, so this test compares bytes.
/// This test has only the kinds of events that version 3 added; recordings in the repository test
/// the older kinds.
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
        // The prologue, which comes before the columns, has the CPU, the number of events and the
        // time of the first event.
        &[0, 6, 50],
        // Each column begins with its number, its length and its compressed length. The first two
        // columns are the kinds and the times.
        &[0, 6, 6, 29, 26, 30, 31, 27, 28],
        &[1, 6, 6, 0, 0, 0, 0, 0, 0],
        // The column of process ids, which is encoded with a table. For each event, the column has
        // either 0 and a new process id, or the index of a process id that occurred before.
        &[2, 7, 7, 0, 8, 1, 1, 1, 1, 1],
        // The column of small fields. Zone and order are one number with 16 bits for each; a byte
        // in the column holds seven bits of this number. The last event has only an order.
        &[8, 10, 10, 0, 0x82, 0x80, 0x0c, 0, 0x85, 0x80, 0x18, 0, 7],
        // The columns of allocation flags, of page counts, and of nodes: one in each line.
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
    // Without compression, each event would take five bytes.
    let (bytes, _) = recording.write(Vec::new()).expect("memory takes all");
    let bytes = bytes.len();
    assert!(bytes < 1000, "{bytes}");
}
