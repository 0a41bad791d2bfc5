//! Writes slices of simulated runs as a trace that Perfetto shows: <https://ui.perfetto.dev>.
//!
//! Each run is a process of the trace. The format is Perfetto's own (protobuf, `TrackEvent`). The
//! JSON format of Chrome would need no messages, but it has no tracks in a chosen order and no flows
//! that end at a single event, and its files are about five times as large.

mod event;
mod layout;
mod proto;

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};

use self::event::{Edge, Label, Value, edges};
use self::layout::{Track, Tracks};
use self::proto::{
    CounterDescriptor, DebugAnnotation, EXPLICIT, InternedData, NEEDS_STATE, Named, PACKET,
    ProcessDescriptor, STATE_CLEARED, TracePacket, TrackDescriptor, TrackEvent, Type,
};
use crate::slices::Slices;

/// The id of the sequence of packets; a trace of ours has one.
const SEQUENCE: u32 = 1;
/// The number of tracks that the ids of one run may use.
const RUN: u64 = 1 << 32;

/// Writes a trace of `runs`, a process for each, and returns how many events it has.
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
    events: Vec<(u64, TrackEvent)>,
    names: Names,
    categories: Names,
    values: Names,
    flows: u64,
}

/// Names with numbers from 1 on.
#[derive(Default)]
struct Names {
    numbers: HashMap<String, u64>,
    named: Vec<Named>,
}

impl Names {
    fn number(&mut self, name: &str) -> u64 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.named.len() as u64 + 1;
        self.numbers.insert(name.to_owned(), number);
        self.named.push(Named {
            iid: Some(number),
            name: Some(name.to_owned()),
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
        let Tracks { slices, values } = Tracks::of(run, self.flows + 1);
        self.flows += run.waits.len() as u64;
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
                let event = self.event(uuid, edge);
                self.events.push((at, event));
            }
        }
        for (track, values) in values {
            let uuid = uuids[&track];
            let event = |(at, value)| (at, counter(uuid, value));
            self.events.extend(values.into_iter().map(event));
        }
    }

    fn event(&mut self, uuid: u64, edge: Edge) -> TrackEvent {
        let (kind, label) = match edge {
            Edge::Begin(label) => (Type::SliceBegin, label),
            Edge::Instant(label) => (Type::Instant, label),
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
            flows_end,
        } = label;
        TrackEvent {
            r#type: Some(kind.into()),
            track_uuid: Some(uuid),
            name_iid: Some(self.names.number(&name)),
            category_iids: vec![self.categories.number(category)],
            debug_annotations: values
                .into_iter()
                .map(|(name, value)| self.annotation(name, value))
                .collect(),
            flow_ids: flow.into_iter().collect(),
            terminating_flow_ids: flows_end,
            ..TrackEvent::default()
        }
    }

    fn annotation(&mut self, name: &str, value: Value) -> DebugAnnotation {
        let name_iid = Some(self.values.number(name));
        let (uint_value, string_value) = match value {
            Value::Number(number) => (Some(number), None),
            Value::Text(text) => (None, Some(text)),
        };
        DebugAnnotation {
            name_iid,
            uint_value,
            string_value,
        }
    }

    fn write(mut self, out: &mut dyn Write) -> io::Result<usize> {
        let mut buffer = Vec::new();
        let first = TracePacket {
            sequence_flags: Some(STATE_CLEARED),
            interned_data: Some(InternedData {
                event_categories: self.categories.named,
                event_names: self.names.named,
                debug_annotation_names: self.values.named,
            }),
            ..TracePacket::default()
        };
        packet(first, &mut buffer, out)?;
        for track in self.tracks {
            let descriptor = TracePacket {
                track_descriptor: Some(track),
                ..TracePacket::default()
            };
            packet(descriptor, &mut buffer, out)?;
        }
        // The sort is stable: the events of a track at the same time keep their order.
        self.events.sort_by_key(|(at, _)| *at);
        let count = self.events.len();
        for (at, event) in self.events {
            let event = TracePacket {
                timestamp: Some(at),
                sequence_flags: Some(NEEDS_STATE),
                track_event: Some(event),
                ..TracePacket::default()
            };
            packet(event, &mut buffer, out)?;
        }
        Ok(count)
    }
}

/// The name of the process that stands for a run.
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

/// Writes one packet of the trace. `buffer` is memory that the calls share.
fn packet(packet: TracePacket, buffer: &mut Vec<u8>, out: &mut dyn Write) -> io::Result<()> {
    let packet = TracePacket {
        trusted_packet_sequence_id: Some(SEQUENCE),
        ..packet
    };
    buffer.clear();
    encode_key(PACKET, WireType::LengthDelimited, buffer);
    encode_varint(packet.encoded_len() as u64, buffer);
    packet.encode_raw(buffer);
    out.write_all(buffer)
}
