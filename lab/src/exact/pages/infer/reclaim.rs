//! Derives from events when kswapd reclaims, and when allocations find that memory is short.

use plimsoll_recording::event::{Event, What};

use super::super::op::Action;
use super::Walk;

/// A shortage concerns the zones of a node up to a certain index. This index is above the index of
/// every zone, so with it, the shortage concerns all zones of the node.
const ALL_ZONES: u8 = u8::MAX;

impl Walk<'_> {
    /// Records the operation that the replay must perform because of an event about reclaim. If the
    /// event is not about reclaim, the function records nothing.
    pub(super) fn reclaim(&mut self, index: usize, cpu: u32, what: &What) {
        if matches!(what, What::DirectReclaimEnd { .. }) {
            // If an allocation still finds no block after reclaim, the allocation drains all lists.
            // So if the thread returns blocks to a zone after this event, the blocks belong to a
            // drain. They were not returned because a free during reclaim filled the lists to
            // `high`.
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
            // Only an event with GFP flags shows that an allocation found a shortage. A
            // `wakeup_kswapd` event without flags wakes kswapd because of a watermark boost.
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
    /// records the watermark boosts that end with the round.
    pub(super) fn reclaim_ends(&mut self, index: usize, cpu: u32) {
        // If this round of kswapd began before the recording, no event shows the beginning of the
        // round, so the node of the round is unknown. Assume node 0, because most computers have no
        // other node.
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

    /// If the recorder read `/proc/zoneinfo` just before event `index`, records the watermark
    /// boosts that this file showed.
    pub(super) fn read_boosts(&mut self, index: usize, cpu: u32) {
        for (zone, pages) in self.boosts.read(index) {
            self.push_op(index, cpu, Action::Boost { zone, pages }, Vec::new());
        }
    }

    /// If event `event` shows that an allocation found a block in a page block of another type,
    /// records the watermark boost that follows.
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
