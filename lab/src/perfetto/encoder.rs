//! Encodes the events of a trace one by one, and writes them to the file. In the sequence of a
//! track, a name is written in full only before the event that uses it first; events refer to names
//! by their ids.

use std::fmt::Display;
use std::hash::Hash;
use std::io::{self, Write};
use std::mem;

use prost::Message;
use prost::encoding::{
    WireType, encode_key, encode_varint, encoded_len_varint, fixed64, int32, int64, key_len, uint64,
};
use rustc_hash::FxHashMap;

use super::event::{Edge, What};
use super::label::{Label, Name, Value};
use super::proto::{
    InternedData, NEEDS_STATE, Named, PACKET, STATE_CLEARED, TracePacket, TrackDescriptor, Type,
    event, packet,
};
use crate::slices::Slices;

/// Encoded packets are written once they have this number of bytes.
const BUFFER: usize = 1 << 16;

/// Encodes packets and writes them to `out`.
///
/// A trace has millions of events, so their packets are encoded field by field, without making the
/// message first.
pub(super) struct Encoder<'a> {
    out: &'a mut dyn Write,
    buffer: Vec<u8>,
    /// The id of the sequence of packets that is being written.
    sequence: u32,
    /// The number of events written.
    events: usize,
    /// The fields that are the same in each packet with an event: the id of the sequence, and the
    /// flag that says that the packet uses ids of names.
    in_each: Vec<u8>,
    /// The fields of the event that is being encoded.
    event: Vec<u8>,
    /// The fields of the value that is being encoded.
    value: Vec<u8>,
    names: Names<Name>,
    categories: Names<&'static str>,
    values: Names<&'static str>,
}

impl<'a> Encoder<'a> {
    pub(super) fn new(out: &'a mut dyn Write) -> Self {
        Self {
            out,
            buffer: Vec::with_capacity(2 * BUFFER),
            sequence: 0,
            events: 0,
            in_each: Vec::new(),
            event: Vec::new(),
            value: Vec::new(),
            names: Names::default(),
            categories: Names::default(),
            values: Names::default(),
        }
    }

    /// Begins the sequence of a track. The events that follow, until the next call, belong to this
    /// sequence.
    pub(super) fn begin(&mut self, track: TrackDescriptor) -> io::Result<()> {
        self.sequence += 1;
        self.names.clear();
        self.categories.clear();
        self.values.clear();
        self.in_each.clear();
        uint64::encode(packet::SEQUENCE, &self.sequence.into(), &mut self.in_each);
        uint64::encode(packet::FLAGS, &NEEDS_STATE.into(), &mut self.in_each);
        self.put(TracePacket {
            sequence_flags: Some(STATE_CLEARED),
            track_descriptor: Some(track),
            ..TracePacket::default()
        })
    }

    /// Writes the beginning or the end of a slice, or a single event, on the track `uuid`. `at` is
    /// the virtual time, in nanoseconds. `of` is the run, and the id of the run's first flow.
    pub(super) fn put_edge(
        &mut self,
        at: u64,
        uuid: u64,
        edge: Edge,
        of: (&Slices, u64),
    ) -> io::Result<()> {
        self.event.clear();
        match edge {
            Edge::Begin(what) => self.encode_labelled(uuid, Type::SliceBegin, what, of),
            Edge::Instant(what) => self.encode_labelled(uuid, Type::Instant, what, of),
            Edge::End => {
                put_kind(&mut self.event, Type::SliceEnd);
                uint64::encode(event::TRACK, &uuid, &mut self.event);
            }
        }
        self.put_event(at)
    }

    /// Writes a new value of the track `uuid`. `at` is the virtual time, in nanoseconds.
    pub(super) fn put_value(&mut self, at: u64, uuid: u64, value: i64) -> io::Result<()> {
        self.event.clear();
        put_kind(&mut self.event, Type::Counter);
        uint64::encode(event::TRACK, &uuid, &mut self.event);
        int64::encode(event::COUNTER, &value, &mut self.event);
        self.put_event(at)
    }

    /// Encodes an event with its name, its values and its flows.
    fn encode_labelled(&mut self, uuid: u64, kind: Type, what: What, of: (&Slices, u64)) {
        let label = Label::of(what, of.0, of.1);
        let category = self.categories.number(label.category);
        let name = self.names.number(label.name);
        uint64::encode(event::CATEGORY, &category, &mut self.event);
        for (name, value) in label.values.into_iter().flatten() {
            self.add_value(name, value);
        }
        put_kind(&mut self.event, kind);
        uint64::encode(event::NAME, &name, &mut self.event);
        uint64::encode(event::TRACK, &uuid, &mut self.event);
        if let Some(flow) = &label.flow {
            fixed64::encode(event::FLOW, flow, &mut self.event);
        }
        if let Some(flow) = &label.flow_end {
            fixed64::encode(event::FLOW_END, flow, &mut self.event);
        }
    }

    /// Adds a value, which a viewer shows with the event, to the event that is being encoded.
    fn add_value(&mut self, name: &'static str, value: Value) {
        let name = self.values.number(name);
        self.value.clear();
        uint64::encode(event::VALUE_NAME, &name, &mut self.value);
        match value {
            Value::Number(number) => {
                uint64::encode(event::VALUE_NUMBER, &number, &mut self.value);
            }
            Value::Text(text) => {
                put_bytes(event::VALUE_TEXT, text.as_bytes(), &mut self.value);
            }
        }
        put_bytes(event::VALUE, &self.value, &mut self.event);
    }

    /// Writes the packet of the event that has just been encoded, with the names that no earlier
    /// event of the sequence has used.
    fn put_event(&mut self, at: u64) -> io::Result<()> {
        self.events += 1;
        if let Some(names) = self.new_names() {
            self.put(TracePacket {
                sequence_flags: Some(NEEDS_STATE),
                interned_data: Some(names),
                ..TracePacket::default()
            })?;
        }
        let fields = uint64::encoded_len(packet::TIMESTAMP, &at)
            + self.in_each.len()
            + encoded_len_of_bytes(packet::EVENT, &self.event);
        encode_key(PACKET, WireType::LengthDelimited, &mut self.buffer);
        encode_varint(fields as u64, &mut self.buffer);
        uint64::encode(packet::TIMESTAMP, &at, &mut self.buffer);
        put_bytes(packet::EVENT, &self.event, &mut self.buffer);
        self.buffer.extend_from_slice(&self.in_each);
        self.flush_if_long()
    }

    /// Returns the names that no event of the sequence has used before, if there are any.
    fn new_names(&mut self) -> Option<InternedData> {
        let has_new = !self.names.new.is_empty()
            || !self.categories.new.is_empty()
            || !self.values.new.is_empty();
        has_new.then(|| InternedData {
            event_categories: mem::take(&mut self.categories.new),
            event_names: mem::take(&mut self.names.new),
            debug_annotation_names: mem::take(&mut self.values.new),
        })
    }

    /// Writes one packet of the sequence.
    fn put(&mut self, packet: TracePacket) -> io::Result<()> {
        let packet = TracePacket {
            trusted_packet_sequence_id: Some(self.sequence),
            ..packet
        };
        encode_key(PACKET, WireType::LengthDelimited, &mut self.buffer);
        encode_varint(packet.encoded_len() as u64, &mut self.buffer);
        packet.encode_raw(&mut self.buffer);
        self.flush_if_long()
    }

    fn flush_if_long(&mut self) -> io::Result<()> {
        if self.buffer.len() >= BUFFER {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    /// Writes the packets that are encoded but not written yet. Returns the number of events in the
    /// trace.
    pub(super) fn finish(mut self) -> io::Result<usize> {
        self.flush()?;
        Ok(self.events)
    }
}

fn put_kind(event: &mut Vec<u8>, kind: Type) {
    int32::encode(event::TYPE, &kind.into(), event);
}

/// Appends a field that contains `bytes` to `buffer`.
fn put_bytes(tag: u32, bytes: &[u8], buffer: &mut Vec<u8>) {
    encode_key(tag, WireType::LengthDelimited, buffer);
    encode_varint(bytes.len() as u64, buffer);
    buffer.extend_from_slice(bytes);
}

/// The number of bytes that [`put_bytes`] appends.
fn encoded_len_of_bytes(tag: u32, bytes: &[u8]) -> usize {
    key_len(tag) + encoded_len_varint(bytes.len() as u64) + bytes.len()
}

/// Names, each with an id. The ids begin at 1.
struct Names<K> {
    numbers: FxHashMap<K, u64>,
    /// The names that no event written so far in the sequence has used.
    new: Vec<Named>,
}

impl<K> Default for Names<K> {
    fn default() -> Self {
        Self {
            numbers: FxHashMap::default(),
            new: Vec::new(),
        }
    }
}

impl<K: Copy + Display + Eq + Hash> Names<K> {
    fn clear(&mut self) {
        self.numbers.clear();
        self.new.clear();
    }

    fn number(&mut self, name: K) -> u64 {
        if let Some(number) = self.numbers.get(&name) {
            return *number;
        }
        let number = self.numbers.len() as u64 + 1;
        self.numbers.insert(name, number);
        self.new.push(Named {
            iid: Some(number),
            name: Some(name.to_string()),
        });
        number
    }
}
