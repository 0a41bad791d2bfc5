//! Writes slices of simulated runs as a trace that Perfetto shows: <https://ui.perfetto.dev>.
//!
//! Each run is a process of the trace. The events of each track are a sequence of packets of their
//! own, in order of time; the sequences stand one after the other in the file. (A reader of
//! Perfetto's format must expect the packets of different sequences in any order.) The format is
//! Perfetto's own (protobuf, `TrackEvent`). The JSON format of Chrome would be simpler to write.
//! But in that format, tracks have no chosen order, a flow cannot end at a single event, and files
//! are about five times as large.

mod encoder;
mod event;
mod label;
mod layout;
mod proto;

use std::io::{self, Write};

use self::encoder::Encoder;
use self::event::edges;
use self::layout::{Track, Tracks};
use self::proto::{CounterDescriptor, EXPLICIT, ProcessDescriptor, TrackDescriptor};
use crate::slices::Slices;

/// How many ids of tracks are reserved for each run.
const RUN: u64 = 1 << 32;

/// Writes a trace of `runs` to `out`, with a process for each run. Returns how many events the
/// trace has.
///
/// # Errors
/// If `out` cannot be written to.
pub fn write(runs: &[Slices], out: &mut dyn Write) -> io::Result<usize> {
    let mut encoder = Encoder::new(out);
    let mut first_flow = 1;
    for (pid, run) in (1..).zip(runs) {
        write_run(pid, run, first_flow, &mut encoder)?;
        first_flow += run.waits.len() as u64;
    }
    encoder.finish()
}

/// Writes the tracks of a run, each with all its events. `first_flow` is the id of the run's first
/// flow (an arrow in the viewer).
fn write_run(pid: u32, run: &Slices, first_flow: u64, encoder: &mut Encoder<'_>) -> io::Result<()> {
    let process = u64::from(pid) * RUN;
    encoder.begin(TrackDescriptor {
        uuid: Some(process),
        process: Some(ProcessDescriptor {
            pid: i32::try_from(pid).ok(),
            process_name: Some(title(run)),
        }),
        child_ordering: Some(EXPLICIT),
        ..TrackDescriptor::default()
    })?;
    let Tracks {
        mut slices,
        mut values,
    } = Tracks::of(run);
    let mut tracks: Vec<Track> = slices.keys().chain(values.keys()).copied().collect();
    tracks.sort_unstable();
    for ((rank, uuid), track) in (0..).zip(process + 1..).zip(tracks) {
        encoder.begin(TrackDescriptor {
            uuid: Some(uuid),
            name: Some(track.name()),
            parent_uuid: Some(process),
            counter: track.unit().map(|unit| CounterDescriptor {
                unit_name: Some(unit.to_owned()),
            }),
            sibling_order_rank: Some(rank),
            ..TrackDescriptor::default()
        })?;
        let slices = slices.remove(&track).unwrap_or_default();
        let shortened = edges(slices, |at, edge| {
            encoder.put_edge(at, uuid, edge, (run, first_flow))
        })?;
        debug_assert_eq!(shortened, 0, "the slices of {} nest", track.name());
        for (at, value) in values.remove(&track).unwrap_or_default() {
            encoder.put_value(at, uuid, value)?;
        }
    }
    Ok(())
}

/// The name of a run. In the trace, each run is a process with this name.
fn title(run: &Slices) -> String {
    format!("{} on {}, seed {}", run.design, run.machine, run.seed)
}
