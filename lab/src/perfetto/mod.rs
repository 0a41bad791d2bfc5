//! Writes slices of simulated runs as a trace that Perfetto shows: <https://ui.perfetto.dev>.
//!
//! Each run is a process of the trace. The format is Perfetto's own (protobuf, `TrackEvent`). The
//! JSON format of Chrome would be simpler to write. But in that format, tracks have no chosen
//! order, a flow cannot end at a single event, and files are about five times as large.

mod event;
mod label;
mod layout;
mod proto;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::hash::Hash;
use std::io::{self, Write};
use std::ops::Range;

use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
use rustc_hash::FxHashMap;

use self::event::{Edge, edges};
use self::label::{Label, Name, Value};
use self::layout::{Track, Tracks};
use self::proto::{
    CounterDescriptor, DebugAnnotation, EXPLICIT, InternedData, NEEDS_STATE, Named, PACKET,
    ProcessDescriptor, STATE_CLEARED, TracePacket, TrackDescriptor, TrackEvent, Type,
};
use crate::slices::Slices;

/// The id of the sequence of packets. A trace that we write has only one sequence.
const SEQUENCE: u32 = 1;
/// How many ids of tracks are reserved for each run.
const RUN: u64 = 1 << 32;

/// Writes a trace of `runs` to `out`, with a process for each run. Returns how many events the
/// trace has.
///
/// # Errors
/// If `out` cannot be written to.
pub fn write(runs: &[Slices], out: &mut dyn Write) -> io::Result<usize> {
    let mut trace = Trace::default();
    for (nth, run) in (1..).zip(runs) {
        trace.add(nth, run);
    }
    trace.write(out)
}

/// A trace in memory.
#[derive(Default)]
struct Trace {
    tracks: Vec<TrackDescriptor>,
    /// For each event, its time, and where its packet is in `packets`.
    events: Vec<(u64, Range<usize>)>,
    /// The encoded packets of the events. Packets that are not encoded would take several times as
    /// much memory.
    packets: Vec<u8>,
    names: Names<Name>,
    categories: Names<&'static str>,
    values: Names<&'static str>,
    /// The number of flows (arrows in the viewer) in all runs that have been added so far.
    flows: u64,
}

/// Names, each with an id. The ids begin at 1.
struct Names<K> {
    numbers: FxHashMap<K, u64>,
    named: Vec<Named>,
}

impl<K> Default for Names<K> {
    fn default() -> Self {
        Self {
            numbers: FxHashMap::default(),
            named: Vec::new(),
        }
    }
}

impl<K: Copy + Display + Eq + Hash> Names<K> {
    fn number(&mut self, name: K) -> u64 {
        if let Some(number) = self.numbers.get(&name) {
            return *number;
        }
        let number = self.named.len() as u64 + 1;
        self.numbers.insert(name, number);
        self.named.push(Named {
            iid: Some(number),
            name: Some(name.to_string()),
        });
        number
    }
}

impl Trace {
    fn add(&mut self, pid: u32, run: &Slices) {
        let process = u64::from(pid) * RUN;
        self.tracks.push(TrackDescriptor {
            uuid: Some(process),
            process: Some(ProcessDescriptor {
                pid: i32::try_from(pid).ok(),
                process_name: Some(title(run)),
            }),
            child_ordering: Some(EXPLICIT),
            ..TrackDescriptor::default()
        });
        let Tracks { slices, values } = Tracks::of(run);
        let mut tracks: Vec<Track> = slices.keys().chain(values.keys()).copied().collect();
        tracks.sort_unstable();
        let uuids: BTreeMap<Track, u64> = tracks.iter().copied().zip(process + 1..).collect();
        for (rank, track) in (0..).zip(&tracks) {
            self.tracks.push(TrackDescriptor {
                uuid: Some(uuids[track]),
                name: Some(track.name()),
                parent_uuid: Some(process),
                counter: track.unit().map(|unit| CounterDescriptor {
                    unit_name: Some(unit.to_owned()),
                }),
                sibling_order_rank: Some(rank),
                ..TrackDescriptor::default()
            });
        }
        for (track, slices) in slices {
            let uuid = uuids[&track];
            let (edges, shortened) = edges(slices);
            debug_assert_eq!(shortened, 0, "the slices of {} nest", track.name());
            for (at, edge) in edges {
                let event = self.event(uuid, edge, run);
                self.push(at, event);
            }
        }
        for (track, values) in values {
            let uuid = uuids[&track];
            for (at, value) in values {
                self.push(at, counter(uuid, value));
            }
        }
        self.flows += run.waits.len() as u64;
    }

    fn push(&mut self, at: u64, event: TrackEvent) {
        let from = self.packets.len();
        let packet = TracePacket {
            timestamp: Some(at),
            sequence_flags: Some(NEEDS_STATE),
            track_event: Some(event),
            ..TracePacket::default()
        };
        encode(packet, &mut self.packets);
        self.events.push((at, from..self.packets.len()));
    }

    fn event(&mut self, uuid: u64, edge: Edge, run: &Slices) -> TrackEvent {
        let (kind, what) = match edge {
            Edge::Begin(what) => (Type::SliceBegin, what),
            Edge::Instant(what) => (Type::Instant, what),
            Edge::End => {
                return TrackEvent {
                    r#type: Some(Type::SliceEnd.into()),
                    track_uuid: Some(uuid),
                    ..TrackEvent::default()
                };
            }
        };
        let Label {
            name,
            category,
            values,
            flow,
            flow_end,
        } = Label::of(what, run, self.flows + 1);
        TrackEvent {
            r#type: Some(kind.into()),
            track_uuid: Some(uuid),
            name_iid: Some(self.names.number(name)),
            category_iids: Some(self.categories.number(category)),
            debug_annotations: values
                .into_iter()
                .map(|(name, value)| self.annotation(name, value))
                .collect(),
            flow_ids: flow,
            terminating_flow_ids: flow_end,
            ..TrackEvent::default()
        }
    }

    fn annotation(&mut self, name: &'static str, value: Value) -> DebugAnnotation {
        let name_iid = Some(self.values.number(name));
        let (uint_value, string_value) = match value {
            Value::Number(number) => (Some(number), None),
            Value::Text(text) => (None, Some(text.to_owned())),
        };
        DebugAnnotation {
            name_iid,
            uint_value,
            string_value,
        }
    }

    fn write(mut self, out: &mut dyn Write) -> io::Result<usize> {
        let first = TracePacket {
            sequence_flags: Some(STATE_CLEARED),
            interned_data: Some(InternedData {
                event_categories: self.categories.named,
                event_names: self.names.named,
                debug_annotation_names: self.values.named,
            }),
            ..TracePacket::default()
        };
        let mut head = Vec::new();
        encode(first, &mut head);
        for track in self.tracks {
            let descriptor = TracePacket {
                track_descriptor: Some(track),
                ..TracePacket::default()
            };
            encode(descriptor, &mut head);
        }
        out.write_all(&head)?;
        // The sort is stable, so the events of a track that have the same time keep their order.
        self.events.sort_by_key(|(at, _)| *at);
        let count = self.events.len();
        for (_, place) in self.events {
            out.write_all(&self.packets[place])?;
        }
        Ok(count)
    }
}

/// The name of a run. In the trace, each run is a process with this name.
fn title(run: &Slices) -> String {
    format!("{} on {}, seed {}", run.design, run.machine, run.seed)
}

fn counter(uuid: u64, value: i64) -> TrackEvent {
    TrackEvent {
        r#type: Some(Type::Counter.into()),
        track_uuid: Some(uuid),
        counter_value: Some(value),
        ..TrackEvent::default()
    }
}

/// Appends one packet of the trace to `buffer`.
fn encode(packet: TracePacket, buffer: &mut Vec<u8>) {
    let packet = TracePacket {
        trusted_packet_sequence_id: Some(SEQUENCE),
        ..packet
    };
    encode_key(PACKET, WireType::LengthDelimited, buffer);
    encode_varint(packet.encoded_len() as u64, buffer);
    packet.encode_raw(buffer);
}
