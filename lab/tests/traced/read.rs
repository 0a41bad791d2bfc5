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
}

pub(crate) fn read(trace: &[u8]) -> Read {
    let mut read = Read::default();
    // For each sequence of packets, its names by their ids, and the time of its last event.
    let mut sequences: BTreeMap<u64, (BTreeMap<u64, String>, u64)> = BTreeMap::new();
    let mut open: BTreeMap<u64, Vec<(String, u64)>> = BTreeMap::new();
    for packet in bytes(trace, 1) {
        let sequence = number(packet, 10).expect("a sequence");
        let (clears_names, is_new) = (
            number(packet, 13) == Some(1),
            !sequences.contains_key(&sequence),
        );
        assert_eq!(clears_names, is_new, "only the first packet clears names");
        let (names, latest) = sequences.entry(sequence).or_default();
        for data in bytes(packet, 12) {
            for name in bytes(data, 2) {
                let (number, name) = (number(name, 1), text(name, 2));
                let before = names.insert(number.expect("a number"), name.expect("a name"));
                assert_eq!(before, None, "an id has one name");
            }
        }
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
        let name = || names[&number(event, 10).expect("a name")].clone();
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
