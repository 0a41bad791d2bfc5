//! Tests the format: a reader returns what was written, and errors about bad input say what to do.

use std::io::{self, Cursor, Write};

use plimsoll_recording::{
    Event, Header, ReadError, Reader, Recording, Symbol, Warning, What, Writer,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

/// Generates page frame numbers. Half of them are from a small range, so that pages recur as on a
/// real computer.
fn page() -> impl Strategy<Value = u64> {
    prop_oneof![0..40_u64, any::<u64>()]
}

fn symbol() -> impl Strategy<Value = Symbol> {
    (0..3_u32).prop_map(Symbol)
}

fn of_pages() -> impl Strategy<Value = What> {
    let mobility = || option::of(any::<u8>());
    prop_oneof![
        (page(), 0..11_u8, mobility(), option::of(any::<u64>())).prop_map(
            |(pfn, order, mobility, gfp)| What::Alloc {
                pfn,
                order,
                mobility,
                gfp
            }
        ),
        (any::<u8>(), mobility())
            .prop_map(|(order, mobility)| What::AllocFailed { order, mobility }),
        (page(), 0..11_u8).prop_map(|(pfn, order)| What::Free { pfn, order }),
        page().prop_map(|pfn| What::FreeBatched { pfn }),
        (page(), any::<u8>(), mobility()).prop_map(|(pfn, order, mobility)| What::PcpuDrain {
            pfn,
            order,
            mobility
        }),
        (page(), any::<u8>(), any::<u8>(), any::<bool>()).prop_map(
            |(pfn, order, mobility, percpu_refill)| What::ZoneLocked {
                pfn,
                order,
                mobility,
                percpu_refill
            }
        ),
        (page(), any::<[u8; 4]>(), any::<bool>()).prop_map(
            |(pfn, [order, fallback_order, mobility, fallback], claimed)| What::ExtFrag {
                pfn,
                order,
                fallback_order,
                mobility,
                fallback,
                claimed
            }
        ),
        any::<u32>().prop_map(|pages| What::BulkAlloc { pages }),
    ]
}

fn of_time_and_locks() -> impl Strategy<Value = What> {
    prop_oneof![
        (page(), symbol()).prop_map(|(work, function)| What::WorkQueued { work, function }),
        (page(), symbol()).prop_map(|(work, function)| What::WorkStart { work, function }),
        (page(), symbol()).prop_map(|(work, function)| What::WorkEnd { work, function }),
        (
            page(),
            symbol(),
            any::<[u64; 2]>(),
            option::of(any::<u64>()),
            any::<u32>()
        )
            .prop_map(|(timer, function, [expires, now], bucket, flags)| {
                What::TimerStart {
                    timer,
                    function,
                    expires,
                    bucket,
                    now,
                    flags,
                }
            }),
        (page(), symbol(), any::<u64>()).prop_map(|(timer, function, now)| What::TimerExpire {
            timer,
            function,
            now
        }),
        (page(), any::<u32>(), vec(symbol(), 0..20))
            .prop_map(|(lock, flags, stack)| { What::ContentionBegin { lock, flags, stack } }),
        (page(), any::<i32>()).prop_map(|(lock, result)| What::ContentionEnd { lock, result }),
    ]
}

fn of_processes() -> impl Strategy<Value = What> {
    prop_oneof![
        (any::<u32>(), any::<bool>(), any::<u32>(), any::<i64>()).prop_map(
            |(mm, current, member, bytes)| What::RssStat {
                mm,
                current,
                member,
                bytes
            }
        ),
        (page(), any::<i64>(), any::<i32>()).prop_map(|(counter, amount, batch)| {
            What::CounterAdd {
                counter,
                amount,
                batch,
            }
        }),
        any::<u32>().prop_map(|victim| What::MarkVictim { victim }),
        any::<u32>().prop_map(|victim| What::WakeReaper { victim }),
        any::<u32>().prop_map(|victim| What::StartReaping { victim }),
        any::<u32>().prop_map(|victim| What::FinishReaping { victim }),
        any::<u32>().prop_map(|victim| What::SkipReaping { victim }),
        Just(What::ExitMmap),
        (page(), page()).prop_map(|(start, end)| What::Unmap { start, end }),
        any::<String>().prop_map(What::Mark),
    ]
}

fn of_reclaim() -> impl Strategy<Value = What> {
    prop_oneof![
        (any::<u32>(), any::<u8>(), any::<u8>()).prop_map(|(node, zone, order)| What::KswapdWake {
            node,
            zone,
            order
        }),
        Just(What::KswapdDone),
        any::<u32>().prop_map(|node| What::KswapdSleep { node }),
        (any::<u32>(), any::<u8>(), any::<u8>(), any::<u64>()).prop_map(
            |(node, zone, order, gfp)| What::WakeupKswapd {
                node,
                zone,
                order,
                gfp
            }
        ),
        (any::<u8>(), any::<u64>())
            .prop_map(|(order, gfp)| What::DirectReclaimBegin { order, gfp }),
        any::<u64>().prop_map(|pages| What::DirectReclaimEnd { pages }),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    let what = prop_oneof![
        4 => of_pages(),
        1 => of_time_and_locks(),
        1 => of_processes(),
        1 => of_reclaim()
    ];
    let time_ns = prop_oneof![0..1000_u64, any::<u64>()];
    (time_ns, 0..4_u32, 0..3_u32, what).prop_map(|(time_ns, cpu, pid, what)| Event {
        time_ns,
        cpu,
        pid,
        what,
    })
}

fn texts() -> impl Strategy<Value = Vec<(String, String)>> {
    vec((any::<String>(), any::<String>()), 0..3)
}

fn recording() -> impl Strategy<Value = Recording> {
    (vec(event(), 0..300), texts(), any::<[u32; 3]>()).prop_map(|(events, texts, numbers)| {
        let header = Header {
            release: "6.12.0".to_owned(),
            hz: numbers[0],
            cpus: numbers[1],
            texts,
            missing: vec!["nothing.".to_owned()],
            symbols: ["a", "b", "c"].map(str::to_owned).to_vec(),
            lost: vec![(2, 0), (3, u64::from(numbers[2]) + 1)],
            ..Header::default()
        };
        let mut recording = Recording { header, events };
        recording.sort();
        recording
    })
}

fn bytes(recording: &Recording) -> Vec<u8> {
    recording.write(Vec::new()).expect("memory takes all").0
}

fn read(bytes: &[u8]) -> Result<(Recording, Vec<Warning>), ReadError> {
    let contents = Recording::read_from("f", Box::new(Cursor::new(bytes.to_vec())))?;
    Ok((contents.recording, contents.warnings))
}

fn error(bytes: &[u8]) -> String {
    read(bytes).expect_err("it is bad").to_string()
}

proptest! {
    #[test]
    fn what_is_written_comes_back(recording in recording()) {
        let (back, warnings) = read(&bytes(&recording)).expect("it was just written");
        let of_cpus: Vec<u64> = recording.header.lost.iter().map(|(_, lost)| *lost).collect();
        let expected = Warning::Lost {
            file: "f".to_owned(),
            events: of_cpus.iter().sum(),
            cpus: of_cpus.iter().filter(|lost| **lost > 0).count(),
        };
        prop_assert_eq!(back, recording);
        prop_assert_eq!(warnings, [expected]);
    }

    #[test]
    fn no_changed_byte_makes_it_panic(recording in recording(), at: prop::sample::Index, to: u8) {
        let mut bytes = bytes(&recording);
        let at = at.index(bytes.len());
        bytes[at] = to;
        // The result is an error, the same recording, or a warning: a chunk that seems longer than
        // the file makes the file look truncated.
        if let Ok((back, warnings)) = read(&bytes) {
            let cut = warnings.iter().any(|warning| matches!(warning, Warning::Truncated { .. }));
            prop_assert!(cut || back == recording);
        }
    }

    #[test]
    fn no_bytes_make_it_panic(tail: Vec<u8>) {
        let mut bytes = bytes(&small());
        bytes.truncate(16);
        bytes.extend(tail);
        let _ = read(&bytes);
    }
}

fn small() -> Recording {
    let event = |nth: u64, cpu, what| Event {
        time_ns: 1_000_000 + nth * 700,
        cpu,
        pid: 7,
        what,
    };
    let events = (0..200).map(|nth| {
        let (pfn, order) = (nth * 37 % 64, 0);
        event(nth, u32::from(nth % 3 == 0), What::Free { pfn, order })
    });
    let mut recording = Recording {
        header: Header {
            release: "6.12.0".to_owned(),
            cpus: 2,
            ..Header::default()
        },
        events: events.collect(),
    };
    recording.sort();
    recording
}

#[test]
fn a_file_cut_at_any_byte_gives_its_whole_chunks_and_a_warning() {
    let recording = small();
    let bytes = bytes(&recording);
    let of_cpu = |cpu| {
        recording
            .events
            .iter()
            .filter(|event| event.cpu == cpu)
            .count()
    };
    let steps = [0, of_cpu(0), of_cpu(0) + of_cpu(1)];
    let mut most = 0;
    for length in 1..bytes.len() {
        match read(&bytes[..length]) {
            Err(error) => {
                assert!(length < 16 && most == 0, "{length}: {error}");
            }
            Ok((part, warnings)) => {
                let events = part.events.len();
                assert!(
                    steps.contains(&events) && events >= most,
                    "{length}: {events}"
                );
                most = events;
                assert!(
                    matches!(warnings[..], [Warning::Truncated { events: told, .. }] if told == events as u64),
                    "{length}: {warnings:?}"
                );
            }
        }
    }
    assert_eq!(most, 200, "all but the end");
    assert_eq!(read(&bytes).expect("whole").1, []);
    let text = read(&bytes[..bytes.len() - 1]).expect("nearly whole").1[0].to_string();
    assert!(
        text.starts_with("f is cut off: its first 200 events were read"),
        "{text}"
    );
}

/// A reader accepts a file of version 2, which lacks the kinds of events and the column that
/// version 3 added.
#[test]
fn a_file_of_version_2_is_read() {
    let recording = small();
    let mut bytes = bytes(&recording);
    assert_eq!(bytes[12..14], [3, 0]);
    bytes[12] = 2;
    let (back, warnings) = read(&bytes).expect("an older version");
    assert_eq!((back, warnings), (recording, vec![]));
}

#[test]
fn a_recording_of_no_use_is_told_together_with_what_is_odd_about_its_file() {
    let bytes = bytes(&small());
    let contents = Recording::read_from("f", Box::new(Cursor::new(bytes[..20].to_vec())))
        .expect("only cut off");
    assert_eq!(
        contents.with_warnings("f has no events that can be shown".to_owned()),
        "f has no events that can be shown. f is cut off: its first 0 events were read, the 4 \
         bytes after them were left out, and the file's last part (lost events, texts read at the \
         end) is missing"
    );
}

#[test]
fn every_kind_of_bad_file_says_what_to_do() {
    let good = bytes(&small());
    let changed = |at: usize, to: &[u8]| {
        let mut bytes = good.clone();
        bytes[at..at + to.len()].copy_from_slice(to);
        error(&bytes)
    };
    assert_eq!(
        changed(8, &[1, 2, 3, 4]),
        "f was written in the other byte order; recordings are little-endian on every computer, so \
         record it again with this plimsoll"
    );
    assert_eq!(
        changed(12, &[9, 0]),
        "f has version 9 of the recording format, and this plimsoll reads up to version 3; read \
         it with a newer plimsoll"
    );
    let lines = good.iter().flat_map(|byte| match byte {
        b'\n' => vec![b'\r', b'\n'],
        byte => vec![*byte],
    });
    let text = "f is not a recording: expected a file that `plimsoll record` wrote, or the text \
                that `perf script` prints, plain or packed with gzip or zstd";
    assert_eq!(error(&lines.collect::<Vec<u8>>()), text);
    assert_eq!(
        changed(40, &[0x55, 0xaa]),
        "f is damaged in the chunk at byte 16: its checksum does not match; copy it again, or \
         record it again"
    );
    assert_eq!(
        changed(20, &[0xff, 0xff, 0xff, 0xff]),
        "f is damaged in the chunk at byte 16: its length is over 64 MiB; copy it again, or \
         record it again"
    );
    assert_eq!(error(b"\0\x01\x02binary"), text);
    assert!(error(b"\0\x01\x02binary\n").contains("expected `comm pid [cpu]"));
}

/// A writer that accepts `room` bytes and then fails, like a full disk.
struct Disk {
    bytes: Vec<u8>,
    room: usize,
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let fit = bytes.len().min(self.room - self.bytes.len());
        if fit == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.bytes.extend_from_slice(&bytes[..fit]);
        Ok(fit)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn what_was_written_before_the_disk_was_full_is_counted_and_can_be_read() {
    let recording = small();
    let mut disk = Disk {
        bytes: Vec::new(),
        room: 900,
    };
    let mut writer = Writer::new(&mut disk, &recording.header).expect("there is room");
    let mut written = Ok(());
    // Each flush makes the writer write chunks, so that some chunks are in the file before the disk
    // is full.
    for (nth, event) in recording.events.iter().enumerate() {
        written = written.and_then(|()| writer.push(event.clone()));
        if nth % 20 == 19 {
            written = written.and_then(|()| writer.flush());
        }
    }
    let error = written.expect_err("900 bytes are too few");
    assert!(error.events >= 20, "{error}");
    let text = format!(
        "the first {} events are in the file and can be read",
        error.events
    );
    assert!(error.to_string().ends_with(&text), "{error}");
    let (part, warnings) = read(&disk.bytes).expect("it can be read");
    assert_eq!(part.events.len() as u64, error.events);
    assert!(matches!(warnings[..], [Warning::Truncated { .. }]));
}

#[test]
fn a_symbol_that_was_not_told_is_refused() {
    let mut writer = Writer::new(Vec::new(), &Header::default()).expect("memory takes all");
    let what = What::WorkEnd {
        work: 1,
        function: Symbol(0),
    };
    let event = Event {
        time_ns: 1,
        cpu: 0,
        pid: 0,
        what,
    };
    writer.push(event.clone()).expect_err("it has no name");
    writer.symbols(&["f".to_owned()]).expect("memory takes all");
    writer.push(event).expect("now it has");
}

#[test]
fn what_only_the_end_knows_is_added_to_the_header() {
    let first = Header {
        release: "6.12.0".to_owned(),
        texts: vec![("zoneinfo before".to_owned(), "1\n\n".to_owned())],
        ..Header::default()
    };
    let writer = Writer::new(Vec::new(), &first).expect("memory takes all");
    let mut last = first.clone();
    last.texts
        .push(("zoneinfo after".to_owned(), String::new()));
    last.lost.push((5, 17));
    last.missing.push("something.".to_owned());
    let (bytes, _) = writer.finish(&last).expect("memory takes all");
    let mut reader = Reader::new("f", &bytes[..]).expect("it was just written");
    assert_eq!(*reader.header(), first);
    assert_eq!(reader.next_events().expect("no damage"), None);
    let (header, warnings) = reader.finish();
    assert_eq!(header, last);
    let text = warnings[0].to_string();
    assert!(
        text.starts_with("f lacks 17 events that the kernel dropped on 1 CPUs"),
        "{text}"
    );
}
