//! A recording from a file: Plimsoll's format, or the text of `perf script`.

use plimsoll_recording::{Event, Header, Recording, What};

use crate::error::Error;
use crate::trace::{self, Reader};

/// Reads the recording in `file`, or in standard input for `-`, and what is odd about it.
///
/// # Errors
/// When the file cannot be read or is no recording.
pub fn open(file: &str) -> Result<(Recording, Vec<String>), Error> {
    let mut reader = Reader::open(file)?;
    let events = reader.by_ref().map(|record| record.map(event));
    let mut events = events.collect::<Result<Vec<Event>, _>>()?;
    if events.is_empty() {
        let (file, lines) = (reader.file().to_owned(), reader.lines());
        return Err(trace::TraceError::Empty { file, lines }.into());
    }
    // Stable, so that events of one CPU keep their order.
    events.sort_by_key(|event| event.time_ns);
    let left_out = reader.ignored().iter();
    let missing = left_out.map(|(name, count)| {
        format!("{count} events {name} were left out: the text of perf script is read for page events only.")
    });
    let header = Header {
        missing: missing.collect(),
        ..Header::default()
    };
    let warnings = reader.warning().map(ToString::to_string);
    Ok((Recording { header, events }, warnings.into_iter().collect()))
}

fn event(record: trace::Record) -> Event {
    let trace::Record {
        time_ns,
        cpu,
        pid,
        event,
    } = record;
    let what = match event {
        trace::Event::Alloc { pfn, order } => What::Alloc {
            pfn,
            order: order.get(),
            mobility: None,
            gfp: None,
        },
        trace::Event::AllocFailed { order } => What::AllocFailed {
            order: order.get(),
            mobility: None,
        },
        trace::Event::Free { pfn, order } => What::Free {
            pfn,
            order: order.get(),
        },
        trace::Event::FreeBatched { pfn } => What::FreeBatched { pfn },
        trace::Event::PcpuDrain { pfn, order } => What::PcpuDrain {
            pfn,
            order: order.get(),
            mobility: None,
        },
    };
    Event {
        time_ns,
        cpu,
        pid,
        what,
    }
}
