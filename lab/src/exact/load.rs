//! Reading a recording for exact replay.

use plimsoll_recording::event::{Event, What};
use plimsoll_recording::{Header, Recording};

use crate::error::Error;
use crate::trace;

/// Reads `file`, or standard input for `-`.
pub(super) fn read(file: &str) -> Result<Recording, Error> {
    let text = trace::Recording::read(file)?;
    let events = text.records.iter().map(event).collect();
    let header = Header::default();
    Ok(Recording { header, events })
}

fn event(record: &trace::Record) -> Event {
    let what = match record.event {
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
        time_ns: record.time_ns,
        cpu: record.cpu,
        pid: record.pid,
        what,
    }
}
