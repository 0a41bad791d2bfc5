//! The neighbours of each event: the next and the previous event of its page frame, and the next
//! event of its CPU. Because the replay knows the whole recording, it can derive most facts that no
//! event states from later events.

use std::collections::HashMap;
use std::ops::Range;

use plimsoll_recording::event::{Event, What};

/// For each event of a recording, the indices of earlier and later events that concern the same
/// frame or CPU. An index is [`NONE`] if there is no such event.
pub(super) struct Future {
    /// For each event, the next event that touches the first frame of the event's block.
    frame: Vec<u32>,
    /// For each event, the last earlier event that touches any frame of the event's block.
    past: Vec<u32>,
    /// For each event, the next event on the same CPU.
    cpu: Vec<u32>,
    /// For each frame, the first event that touches it.
    first: HashMap<u64, u32>,
}

const NONE: u32 = u32::MAX;

/// An event touches at most this number of its block's frames. This is the number of frames in the
/// largest block of Linux's buddy allocator.
const FRAMES_MAX: u64 = 1 << 10;

impl Future {
    pub(super) fn of(events: &[Event]) -> Self {
        let mut frame = vec![NONE; events.len()];
        let mut cpu = vec![NONE; events.len()];
        let mut touched: HashMap<u64, u32> = HashMap::new();
        let mut ran: HashMap<u32, u32> = HashMap::new();
        for (index, event) in events.iter().enumerate().rev() {
            let at = u32::try_from(index).unwrap_or(NONE);
            cpu[index] = ran.insert(event.cpu, at).unwrap_or(NONE);
            if let Some((pfn, order)) = block(&event.what) {
                let next = touched.insert(pfn, at).unwrap_or(NONE);
                frame[index] = next;
                for inside in frames(pfn, order).skip(1) {
                    touched.insert(inside, at);
                }
            }
        }
        Self {
            frame,
            past: past(events),
            cpu,
            first: touched,
        }
    }

    /// The index of the recording's first event that touches frame `pfn`.
    pub(super) fn first(&self, pfn: u64) -> Option<usize> {
        self.first.get(&pfn).map(|&index| index as usize)
    }

    /// The index of the next event that touches the first frame of the block of event `index`.
    pub(super) fn of_frame(&self, index: usize) -> Option<usize> {
        known(self.frame[index])
    }

    /// The index of the last event before event `index` that touches any frame of the block of
    /// event `index`.
    pub(super) fn before(&self, index: usize) -> Option<usize> {
        known(self.past[index])
    }

    /// The index of the next event on the CPU of event `index`.
    pub(super) fn of_cpu(&self, index: usize) -> Option<usize> {
        known(self.cpu[index])
    }
}

fn known(index: u32) -> Option<usize> {
    (index != NONE).then_some(index as usize)
}

/// The frames of a block, but at most the first [`FRAMES_MAX`] frames.
fn frames(pfn: u64, order: u8) -> Range<u64> {
    pfn..pfn.saturating_add((1u64 << order.min(63)).min(FRAMES_MAX))
}

/// For each event, the last earlier event that touches any frame of the event's block.
fn past(events: &[Event]) -> Vec<u32> {
    let mut touched: HashMap<u64, u32> = HashMap::new();
    let mut past = vec![NONE; events.len()];
    for (index, event) in events.iter().enumerate() {
        let at = u32::try_from(index).unwrap_or(NONE);
        if let Some((pfn, order)) = block(&event.what) {
            let earlier = frames(pfn, order).filter_map(|frame| touched.insert(frame, at));
            past[index] = earlier.max().unwrap_or(NONE);
        }
    }
    past
}

/// The first frame and the order of the block that an event concerns. `None` if the event concerns
/// no block.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn events(whats: &[What]) -> Vec<Event> {
        let event = |what: &What| Event {
            time_ns: 0,
            cpu: 0,
            pid: 1,
            what: what.clone(),
        };
        whats.iter().map(event).collect()
    }

    fn alloc(pfn: u64, order: u8) -> What {
        What::Alloc {
            pfn,
            order,
            mobility: None,
            gfp: None,
        }
    }

    fn free(pfn: u64, order: u8) -> What {
        What::Free { pfn, order }
    }

    #[test]
    fn the_last_event_of_any_frame_of_the_block_comes_before() {
        let future = Future::of(&events(&[free(11, 0), free(10, 0), alloc(10, 1)]));
        assert_eq!(future.before(2), Some(1));
        let future = Future::of(&events(&[free(10, 0), free(11, 0), alloc(10, 1)]));
        assert_eq!(future.before(2), Some(1), "the second frame counts too");
    }

    #[test]
    fn a_larger_block_comes_before_each_of_its_frames() {
        let future = Future::of(&events(&[alloc(8, 2), free(10, 0), free(12, 0)]));
        assert_eq!(future.before(1), Some(0));
        assert_eq!(future.before(2), None, "frame 12 is behind the block");
        assert_eq!(future.of_frame(0), None, "frame 8 is not touched again");
        assert_eq!(future.first(10), Some(0));
    }

    /// Linux's largest block has 1,024 pages, and an event of that block touches each of these
    /// pages.
    #[test]
    fn the_largest_block_comes_before_its_last_frame() {
        let future = Future::of(&events(&[alloc(0, 10), free(1023, 0), free(1024, 0)]));
        assert_eq!(future.before(1), Some(0));
        assert_eq!(future.before(2), None, "frame 1024 is behind the block");
        assert_eq!(future.first(1023), Some(0));
    }
}
