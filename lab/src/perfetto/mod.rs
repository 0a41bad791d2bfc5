//! Writes slices of simulated runs as a trace that Perfetto shows: <https://ui.perfetto.dev>.
//!
//! Each run is a process of the trace. The format is Perfetto's own (protobuf, `TrackEvent`). The
//! JSON format of Chrome would be simpler to write. But in that format, tracks have no chosen
//! order, a flow cannot end at a single event, and files are about five times as large.

mod encoder;
mod event;
mod label;
mod layout;
mod proto;

use std::collections::BTreeMap;
use std::io::{self, Write};

use rustc_hash::FxHashMap;

use self::encoder::Encoder;
use self::event::{Edge, Event, Happens, Slice, edges};
use self::layout::{Track, Tracks};
use self::proto::{
    CounterDescriptor, EXPLICIT, ProcessDescriptor, STATE_CLEARED, TracePacket, TrackDescriptor,
    Type,
};
use crate::slices::Slices;

/// How many ids of tracks are reserved for each run.
const RUN: u64 = 1 << 32;

/// Writes a trace of `runs` to `out`, with a process for each run. Returns how many events the
/// trace has.
///
/// # Errors
/// If `out` cannot be written to.
pub fn write(runs: &[Slices], out: &mut dyn Write) -> io::Result<usize> {
    let mut trace = Trace::default();
    for (pid, run) in (1..).zip(runs) {
        trace.add(pid, run);
    }
    trace.write(out)
}

/// A trace in memory, whose events are not encoded yet.
#[derive(Default)]
struct Trace<'a> {
    descriptors: Vec<TrackDescriptor>,
    tracks: Vec<OfTrack<'a>>,
    events: Vec<Event>,
    values: Vec<i64>,
    /// The number of flows (arrows in the viewer) in all runs that have been added so far.
    flows: u64,
}

/// What the events of a track need to be encoded.
struct OfTrack<'a> {
    uuid: u64,
    run: &'a Slices,
    /// The id of the run's first flow.
    first_flow: u64,
}

impl<'a> Trace<'a> {
    fn add(&mut self, pid: u32, run: &'a Slices) {
        let process = u64::from(pid) * RUN;
        self.descriptors.push(TrackDescriptor {
            uuid: Some(process),
            process: Some(ProcessDescriptor {
                pid: i32::try_from(pid).ok(),
                process_name: Some(title(run)),
            }),
            child_ordering: Some(EXPLICIT),
            ..TrackDescriptor::default()
        });
        let Tracks { mut slices, values } = Tracks::of(run);
        let mut tracks: Vec<Track> = slices.keys().chain(values.keys()).copied().collect();
        tracks.sort_unstable();
        let first = index(self.tracks.len());
        let indices: BTreeMap<Track, u32> = tracks.iter().copied().zip(first..).collect();
        for ((rank, uuid), track) in (0..).zip(process + 1..).zip(&tracks) {
            self.descriptors.push(TrackDescriptor {
                uuid: Some(uuid),
                name: Some(track.name()),
                parent_uuid: Some(process),
                counter: track.unit().map(|unit| CounterDescriptor {
                    unit_name: Some(unit.to_owned()),
                }),
                sibling_order_rank: Some(rank),
                ..TrackDescriptor::default()
            });
            self.tracks.push(OfTrack {
                uuid,
                run,
                first_flow: self.flows + 1,
            });
        }
        self.add_slices(&mut slices, &indices);
        self.add_values(values, &indices);
        self.flows += run.waits.len() as u64;
    }

    fn add_slices(
        &mut self,
        slices: &mut FxHashMap<Track, Vec<Slice>>,
        indices: &BTreeMap<Track, u32>,
    ) {
        let count: usize = slices.values().map(Vec::len).sum();
        self.events.reserve(2 * count);
        for (of, &track) in indices {
            let slices = slices.remove(of).unwrap_or_default();
            let shortened = edges(slices, |at, edge| {
                let happens = Happens::Edge(edge);
                self.events.push(Event { at, track, happens });
            });
            debug_assert_eq!(shortened, 0, "the slices of {} nest", of.name());
        }
    }

    fn add_values(
        &mut self,
        values: BTreeMap<Track, Vec<(u64, i64)>>,
        indices: &BTreeMap<Track, u32>,
    ) {
        for (of, values) in values {
            let track = indices[&of];
            for (at, value) in values {
                let happens = Happens::Counted(index(self.values.len()));
                self.values.push(value);
                self.events.push(Event { at, track, happens });
            }
        }
    }

    fn write(mut self, out: &mut dyn Write) -> io::Result<usize> {
        let mut encoder = Encoder::new(out);
        encoder.put(TracePacket {
            sequence_flags: Some(STATE_CLEARED),
            ..TracePacket::default()
        })?;
        for track in self.descriptors {
            encoder.put(TracePacket {
                track_descriptor: Some(track),
                ..TracePacket::default()
            })?;
        }
        // The sort is stable, so the events of a track that have the same time keep their order.
        self.events.sort_by_key(|event| event.at);
        for event in &self.events {
            let track = &self.tracks[event.track as usize];
            let (at, uuid, of) = (event.at, track.uuid, (track.run, track.first_flow));
            match event.happens {
                Happens::Edge(Edge::Begin(what)) => {
                    encoder.put_begin(at, uuid, Type::SliceBegin, what, of)
                }
                Happens::Edge(Edge::Instant(what)) => {
                    encoder.put_begin(at, uuid, Type::Instant, what, of)
                }
                Happens::Edge(Edge::End) => encoder.put_end(at, uuid),
                Happens::Counted(nth) => encoder.put_value(at, uuid, self.values[nth as usize]),
            }?;
        }
        encoder.flush()?;
        Ok(self.events.len())
    }
}

/// The name of a run. In the trace, each run is a process with this name.
fn title(run: &Slices) -> String {
    format!("{} on {}, seed {}", run.design, run.machine, run.seed)
}

/// The index of the next element of a list that has `len` elements.
fn index(len: usize) -> u32 {
    u32::try_from(len).expect("a trace in memory has less than 4 billion events")
}
