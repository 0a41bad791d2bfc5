//! The neighbours of each event: the next and the previous event of its page frame, and the next
//! event of its CPU. Because the whole recording is known, later events show most of what no event
//! states.

use std::collections::HashMap;

use plimsoll_recording::event::{Event, What};

/// For each event, the indices of related events; [`NONE`] if there is none.
pub(super) struct Future {
    /// The next event that touches the first frame of the block.
    frame: Vec<u32>,
    /// The earliest event whose block's first frame is next touched by this event. If all blocks
    /// are of one order, it is the previous event about the same block.
    past: Vec<u32>,
    /// The next event on the same CPU.
    cpu: Vec<u32>,
    /// The first event that touches each frame.
    first: HashMap<u64, u32>,
}

const NONE: u32 = u32::MAX;

/// The most frames of a block that count as touched by its events: as many as the largest block of
/// Linux' buddy allocator has.
const FRAMES_MAX: u64 = 1 << 10;

impl Future {
    pub(super) fn of(events: &[Event]) -> Self {
        let mut frame = vec![NONE; events.len()];
        let mut past = vec![NONE; events.len()];
        let mut cpu = vec![NONE; events.len()];
        let mut touched: HashMap<u64, u32> = HashMap::new();
        let mut ran: HashMap<u32, u32> = HashMap::new();
        for (index, event) in events.iter().enumerate().rev() {
            let at = u32::try_from(index).unwrap_or(NONE);
            cpu[index] = ran.insert(event.cpu, at).unwrap_or(NONE);
            if let Some((pfn, order)) = block(&event.what) {
                let next = touched.insert(pfn, at).unwrap_or(NONE);
                frame[index] = next;
                if let Some(past) = past.get_mut(next as usize) {
                    *past = at;
                }
                let end = pfn.saturating_add((1u64 << order.min(63)).min(FRAMES_MAX));
                for inside in pfn + 1..end {
                    touched.insert(inside, at);
                }
            }
        }
        Self {
            frame,
            past,
            cpu,
            first: touched,
        }
    }

    /// The first event that touches `pfn`.
    pub(super) fn first(&self, pfn: u64) -> Option<usize> {
        self.first.get(&pfn).map(|&index| index as usize)
    }

    /// The next event that touches the first frame of the block of event `index`.
    pub(super) fn of_frame(&self, index: usize) -> Option<usize> {
        known(self.frame[index])
    }

    /// The earliest event whose block's first frame is next touched by event `index`. If all blocks
    /// are of one order, it is the previous event about the same block.
    pub(super) fn before(&self, index: usize) -> Option<usize> {
        known(self.past[index])
    }

    /// The next event after `index` on the same CPU.
    pub(super) fn of_cpu(&self, index: usize) -> Option<usize> {
        known(self.cpu[index])
    }
}

fn known(index: u32) -> Option<usize> {
    (index != NONE).then_some(index as usize)
}

/// The first frame and the order of the block that an event is about, if it is about a block.
fn block(what: &What) -> Option<(u64, u8)> {
    match *what {
        What::Alloc { pfn, order, .. }
        | What::Free { pfn, order }
        | What::PcpuDrain { pfn, order, .. }
        | What::ZoneLocked { pfn, order, .. }
        | What::ExtFrag { pfn, order, .. } => Some((pfn, order)),
        What::FreeBatched { pfn } => Some((pfn, 0)),
        _ => None,
    }
}
