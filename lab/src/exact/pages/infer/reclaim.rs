//! Derives from events when kswapd reclaims, and when allocations find memory short.

use plimsoll_recording::event::{Event, What};

use super::super::op::Action;
use super::Walk;

/// A number above the index of every zone. A shortage up to this zone concerns all zones.
const ALL_ZONES: u8 = u8::MAX;

impl Walk<'_> {
    /// Records the operation that an event about reclaim shows, if it shows one.
    pub(super) fn reclaim(&mut self, index: usize, cpu: u32, what: &What) {
        if matches!(what, What::DirectReclaimEnd { .. }) {
            // If the thread returns blocks to a zone from now on, they are not a spill of the pages
            // that it freed during reclaim. An allocation that still finds no block after reclaim
            // drains all lists, so these blocks come from such a drain.
            self.freeing.remove(&cpu);
        }
        let action = match *what {
            What::KswapdWake { node, zone, .. } => {
                self.kswapds.insert(self.events[index].pid, node);
                self.boosts.round_begins(node);
                Action::Reclaim {
                    node,
                    highest: zone,
                    active: true,
                }
            }
            What::KswapdDone => return self.reclaim_ends(index, cpu),
            What::KswapdSleep { node } => Action::Sleep { node },
            // Without GFP flags, kswapd is woken because a watermark is boosted, and not because an
            // allocation found a shortage.
            What::WakeupKswapd {
                node, zone, gfp, ..
            } if gfp != 0 => Action::Shortage {
                node: Some(node),
                highest: zone,
            },
            What::DirectReclaimBegin { .. } | What::AllocFailed { .. } => Action::Shortage {
                node: None,
                highest: ALL_ZONES,
            },
            _ => return,
        };
        self.push_op(index, cpu, action, Vec::new());
    }

    /// Records that event `index` ends the round of the kswapd that runs in the event's thread, and
    /// records the boosts that change as a result.
    pub(super) fn reclaim_ends(&mut self, index: usize, cpu: u32) {
        // If the round began before the recording, no event shows its beginning, so its node is
        // unknown. Node 0 is assumed, because most computers have no other node.
        let pid = self.events[index].pid;
        let node = self.kswapds.get(&pid).copied().unwrap_or(0);
        let action = Action::Reclaim {
            node,
            highest: ALL_ZONES,
            active: false,
        };
        self.push_op(index, cpu, action, Vec::new());
        for (zone, pages) in self.boosts.round_ends(node) {
            self.push_op(index, cpu, Action::Boost { zone, pages }, Vec::new());
        }
    }

    /// Records the boosts that `/proc/zoneinfo` showed, if it was read just before event `index`.
    pub(super) fn read_boosts(&mut self, index: usize, cpu: u32) {
        for (zone, pages) in self.boosts.read(index) {
            self.push_op(index, cpu, Action::Boost { zone, pages }, Vec::new());
        }
    }

    /// Records the watermark boost that an event causes, because an allocation found a block in a
    /// page block of another type.
    pub(super) fn boost(&mut self, index: usize, event: &Event) {
        let What::ExtFrag {
            pfn,
            fallback_order,
            ..
        } = event.what
        else {
            return;
        };
        let Some(zone) = self.zone(pfn) else { return };
        if let Some(pages) = self.boosts.claim(zone, fallback_order) {
            self.push_op(index, event.cpu, Action::Boost { zone, pages }, Vec::new());
        }
    }
}
