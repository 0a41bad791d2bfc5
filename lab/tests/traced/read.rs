//! Reads a trace. The reader only knows protobuf's wire format. It does not use the code that
//! writes traces.

use std::collections::BTreeMap;

/// The fields of a protobuf message. Each field has its field number and its value.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let field = match key & 7 {
            0 => Field::Number(varint(&mut bytes)),
            1 => {
                let (value, rest) = bytes.split_at(8);
                bytes = rest;
                Field::Number(u64::from_le_bytes(value.try_into().expect("eight bytes")))
            }
            2 => {
                let length = usize::try_from(varint(&mut bytes)).expect("a length");
                let (value, rest) = bytes.split_at(length);
                bytes = rest;
                Field::Bytes(value)
            }
            kind => panic!("wire type {kind}"),
        };
        fields.push((key >> 3, field));
    }
    fields
}

#[derive(Clone, Copy)]
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..70).step_by(7) {
        let (byte, rest) = bytes.split_first().expect("the number ends");
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return value;
        }
    }
    panic!("a number has at most ten bytes")
}

fn number(message: &[u8], wanted: u64) -> Option<u64> {
    numbers(message, wanted).first().copied()
}

fn numbers(message: &[u8], wanted: u64) -> Vec<u64> {
    let of = |(number, field): (u64, Field<'_>)| match field {
        Field::Number(value) if number == wanted => Some(value),
        _ => None,
    };
    fields(message).into_iter().filter_map(of).collect()
}

fn bytes(message: &[u8], wanted: u64) -> Vec<&[u8]> {
    let of = |(number, field)| match field {
        Field::Bytes(value) if number == wanted => Some(value),
        _ => None,
    };
    fields(message).into_iter().filter_map(of).collect()
}

fn text(message: &[u8], wanted: u64) -> Option<String> {
    let first = bytes(message, wanted).first().copied()?;
    Some(String::from_utf8(first.to_vec()).expect("UTF-8"))
}

/// The contents of a trace, as far as the tests need them.
#[derive(Default)]
pub(crate) struct Read {
    pub(crate) processes: Vec<String>,
    /// For each track, by its id, its name and the id of its process.
    pub(crate) tracks: BTreeMap<u64, (String, u64)>,
    /// For each track, its slices. Each has a name, a beginning and an end.
    pub(crate) slices: BTreeMap<u64, Vec<(String, u64, u64)>>,
    /// The time at which each flow (an arrow between two slices) begins, and the time at which it
    /// ends, by the id of the flow.
    pub(crate) flows: [BTreeMap<u64, u64>; 2],
    pub(crate) values: BTreeMap<u64, Vec<(u64, i64)>>,
    /// How many events the trace has.
    pub(crate) events: usize,
}

/// The lists of names of a trace, each with the number of its field in `InternedData`.
const CATEGORIES: usize = 1;
const EVENTS: usize = 2;
const VALUES: usize = 3;

/// The names that the packets of a sequence have introduced up to a place in the trace, by their
/// ids, for each list of names.
#[derive(Default)]
struct Names([BTreeMap<u64, String>; 3]);

impl Names {
    fn learn(&mut self, packet: &[u8]) {
        for data in bytes(packet, 12) {
            assert_eq!(number(packet, 13), Some(2), "the packet adds to the names");
            for (field, names) in (1..).zip(&mut self.0) {
                for name in bytes(data, field) {
                    let (number, name) = (number(name, 1), text(name, 2));
                    let before = names.insert(number.expect("a number"), name.expect("a name"));
                    assert_eq!(before, None, "an id has one name");
                }
            }
        }
    }

    fn of(&self, list: usize, id: u64) -> &str {
        let name = self.0[list - 1].get(&id);
        name.expect("an earlier packet has the name")
    }
}

/// Returns the tracks and the events of a trace in their order, each as one line of text.
pub(crate) fn lines(trace: &[u8]) -> Vec<String> {
    let mut sequences: BTreeMap<u64, Names> = BTreeMap::new();
    let (mut tracks, mut lines) = (BTreeMap::<u64, String>::new(), Vec::new());
    for packet in bytes(trace, 1) {
        let sequence = number(packet, 10).expect("a sequence");
        let names = sequences.entry(sequence).or_default();
        names.learn(packet);
        for track in bytes(packet, 60) {
            let process = number(track, 5).map(|id| tracks[&id].clone());
            let name = match (process, bytes(track, 3).first()) {
                (Some(process), _) => format!("{process}, {}", text(track, 2).expect("a name")),
                (None, process) => text(process.expect("a process"), 6).expect("a name"),
            };
            let rank = number(track, 12).map_or(String::new(), |rank| format!("{rank}. "));
            lines.push(format!("{rank}{name}"));
            tracks.insert(number(track, 1).expect("an id"), name);
        }
        for event in bytes(packet, 11) {
            let at = number(packet, 8).expect("a time");
            let track = &tracks[&number(event, 11).expect("a track")];
            lines.push(format!("{at} {track}{}", line(event, names)));
        }
    }
    lines
}

/// Describes an event without its time and its track.
fn line(event: &[u8], names: &Names) -> String {
    let kinds = [(1, "begins"), (2, "ends"), (3, "happens"), (4, "is")];
    let kind = number(event, 9).and_then(|number| BTreeMap::from(kinds).remove(&number));
    let mut line = format!(": {}", kind.expect("a type that is known"));
    if let Some(value) = number(event, 30) {
        line += &format!(" {}", value.cast_signed());
    }
    if let Some(name) = number(event, 10) {
        let category = number(event, 3).expect("a category");
        let (name, category) = (names.of(EVENTS, name), names.of(CATEGORIES, category));
        line += &format!(" {name} [{category}]");
    }
    for value in bytes(event, 4) {
        assert_eq!(fields(value).len(), 2, "a value has a name and a content");
        let name = names.of(VALUES, number(value, 1).expect("a name"));
        let content = number(value, 3).map(|number| number.to_string());
        let content = content.or_else(|| text(value, 6)).expect("a content");
        line += &format!(", {name}: {content}");
    }
    for (field, arrow) in [(47, "->"), (48, "<-")] {
        let flows = numbers(event, field);
        flows
            .iter()
            .for_each(|flow| line += &format!(" {arrow}{flow}"));
    }
    line
}

pub(crate) fn read(trace: &[u8]) -> Read {
    let mut read = Read::default();
    // For each sequence of packets, its names, and the time of its last event.
    let mut sequences: BTreeMap<u64, (Names, u64)> = BTreeMap::new();
    let mut open: BTreeMap<u64, Vec<(String, u64)>> = BTreeMap::new();
    for packet in bytes(trace, 1) {
        let sequence = number(packet, 10).expect("a sequence");
        let (clears_names, is_new) = (
            number(packet, 13) == Some(1),
            !sequences.contains_key(&sequence),
        );
        assert_eq!(clears_names, is_new, "only the first packet clears names");
        let (names, latest) = sequences.entry(sequence).or_default();
        names.learn(packet);
        for track in bytes(packet, 60) {
            let id = number(track, 1).expect("an id");
            match bytes(track, 3).first() {
                Some(process) => read.processes.push(text(process, 6).expect("a name")),
                None => {
                    let parent = number(track, 5).expect("a process");
                    let name = text(track, 2).expect("a name");
                    assert_eq!(read.tracks.insert(id, (name, parent)), None);
                }
            }
        }
        let Some(event) = bytes(packet, 11).first().copied() else {
            continue;
        };
        let at = number(packet, 8).expect("a time");
        assert!(at >= *latest, "the times of a sequence ascend");
        *latest = at;
        let track = number(event, 11).expect("a track");
        assert!(read.tracks.contains_key(&track), "the track has a name");
        for (of, field) in read.flows.iter_mut().zip([47, 48]) {
            for flow in numbers(event, field) {
                assert_eq!(of.insert(flow, at), None, "a flow has two ends");
            }
        }
        assert_eq!(number(packet, 13), Some(2), "the event uses ids of names");
        read.events += 1;
        let name = || {
            names
                .of(EVENTS, number(event, 10).expect("a name"))
                .to_owned()
        };
        let of_track = open.entry(track).or_default();
        match number(event, 9) {
            Some(1) => of_track.push((name(), at)),
            Some(2) => {
                let (name, from) = of_track.pop().expect("a slice ends that began");
                let slices = read.slices.entry(track).or_default();
                slices.push((name, from, at));
            }
            Some(3) => drop(name()),
            Some(4) => {
                let value = number(event, 30).expect("a value").cast_signed();
                read.values.entry(track).or_default().push((at, value));
            }
            other => panic!("an event of the type {other:?}"),
        }
    }
    assert!(open.values().all(Vec::is_empty), "all slices end");
    read
}
