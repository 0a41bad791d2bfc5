//! Derives from events when kswapd reclaims, and when allocations find memory short.

use plimsoll_recording::event::{Event, What};

use super::super::op::Action;
use super::Walk;

/// The highest zone index of a shortage that concerns all zones. An event names the highest index,
/// and concerns the zones up to it; no zone has an index as high as this one.
const ALL_ZONES: u8 = u8::MAX;

impl Walk<'_> {
    /// Records the operation that the replay must perform because of an event about reclaim. An
    /// event of another kind adds no operation.
    pub(super) fn reclaim(&mut self, index: usize, cpu: u32, what: &What) {
        if matches!(what, What::DirectReclaimEnd { .. }) {
            // Blocks that the thread returns to a zone after this event are not a spill that its
            // frees during reclaim caused. An allocation that still finds no block after reclaim
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
            // Only an event with GFP flags shows that an allocation found a shortage. Without them,
            // kswapd is woken because of a watermark boost.
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
    /// records the watermark boosts that end with it.
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

    /// If `/proc/zoneinfo` was read just before event `index`, records the watermark boosts that it
    /// showed.
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
