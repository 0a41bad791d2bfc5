//! Derives operations from the events about blocks that a CPU takes from a zone. Such blocks either
//! refill an empty page list or go directly to a caller.

use plimsoll_recording::event::What;

use super::super::lists::{ListId, Place, UNMOVABLE};
use super::super::op::{Action, Kind, Move};
use super::Walk;

/// Blocks that a CPU took from a zone under one hold of the zone lock. The blocks of successive
/// holds form one group if no other event of the CPU lies between these holds.
struct Group {
    /// For each block of the group, its first frame, and the index of the group's last event that
    /// concerns the block.
    pfns: Vec<(u64, usize)>,
    order: u8,
    mobility: u8,
    /// The index of the last event that concerns one of these blocks.
    last: usize,
}

/// The replay searches this number of events, of all threads, for a thread's next allocation.
const SOON: usize = 1000;

impl Walk<'_> {
    /// Derives the operation for a group of blocks that a CPU took from a zone: a refill or a
    /// direct allocation. The group begins with event `index`.
    pub(super) fn taken(&mut self, index: usize, cpu: u32) {
        let Some(group) = self.group(index) else {
            return;
        };
        let (first, came) = group.pfns[0];
        let Some(zone) = self.zone(first) else { return };
        let next = self.future.of_frame(came);
        let visible = next.filter(|&next| {
            matches!(self.events[next].what, What::Alloc { pfn, order, .. }
                if (pfn, order) == (first, group.order))
        });
        let asked = visible.and_then(|next| match self.events[next].what {
            What::Alloc { mobility, .. } => mobility,
            _ => None,
        });
        let list = ListId::of(group.order, asked.unwrap_or(group.mobility));
        let Some(list) = list else {
            self.direct.insert(first);
            return;
        };
        let place = Place { cpu, zone, list };
        // A refill takes at least two blocks if the batch is more than one page, so a lone block
        // went directly to a caller.
        let lone = group.pfns.len() == 1 && self.batch(zone) > 1;
        if lone && visible.is_some() && (list.order() < 9 || self.lists.len(place) > 0) {
            self.direct.insert(first);
            return;
        }
        self.refill(index, place, &group, visible);
    }

    fn refill(&mut self, index: usize, place: Place, group: &Group, visible: Option<usize>) {
        let mut moved = Move::new(Kind::Refill, place.zone);
        group.pfns.iter().for_each(|_| moved.add(place.list));
        // The refill shows that the kernel's list was empty. So the blocks that are still on the
        // derived list left the kernel's list without an event.
        let taken: Vec<u64> = self.lists.above(place, None);
        let mut taken = self.without_misplaced(place, taken);
        self.emptied.insert(place);
        for &(pfn, came) in &group.pfns {
            self.take_elsewhere(index, pfn);
            self.lists.push_cold(place, pfn);
            self.came.insert(pfn, came);
        }
        let Some(next) = visible else {
            let wanted = self.probed(group.last);
            let unseen = group.pfns.iter().map(|(pfn, _)| *pfn);
            let unseen = unseen.take_while(|&pfn| self.is_taken_unseen(pfn));
            let room = wanted.map_or(usize::MAX, |wanted| wanted.saturating_sub(taken.len()));
            let unseen: Vec<u64> = unseen.take(room.max(1)).collect();
            taken.extend(unseen);
            self.take_unseen(index, place, taken, vec![moved]);
            return;
        };
        self.take_unseen(index, place, taken, Vec::new());
        let (pfn, _) = group.pfns[0];
        self.done[next] = true;
        self.refilling.insert(place.cpu, (place.zone, next));
        self.tally.allocs += 1;
        self.lists.remove(pfn);
        self.came.remove(&pfn);
        let action = Action::Alloc {
            zone: place.zone,
            list: place.list,
            pfn,
        };
        self.push_op(index, place.cpu, action, vec![moved]);
    }

    /// Collects the blocks of one order and one zone that the CPU of event `index` took, beginning
    /// with this event. The group ends before the next event of this CPU that does not take such a
    /// block.
    fn group(&mut self, index: usize) -> Option<Group> {
        let mut group: Option<Group> = None;
        let mut next = Some(index);
        while let Some(at) = next {
            let (pfn, order, mobility) = match self.events[at].what {
                What::ZoneLocked {
                    pfn,
                    order,
                    mobility,
                    ..
                } => (pfn, order, mobility),
                What::ExtFrag {
                    pfn,
                    order,
                    mobility,
                    ..
                } => (pfn, order, mobility),
                _ => break,
            };
            match &mut group {
                None => {
                    group = Some(Group {
                        pfns: vec![(pfn, at)],
                        order,
                        mobility,
                        last: at,
                    });
                }
                Some(group) => {
                    if group.order != order || self.zone(group.pfns[0].0) != self.zone(pfn) {
                        break;
                    }
                    group.last = at;
                    // Two successive events for one frame concern one block. The kernel emits two
                    // events if the block came from a page block of another type.
                    match group.pfns.last_mut() {
                        Some((same, came)) if *same == pfn => *came = at,
                        _ => group.pfns.push((pfn, at)),
                    }
                }
            }
            self.done[at] = true;
            next = self.future.of_cpu(at);
        }
        group
    }

    /// The number of pages that a bulk allocation took. `None` if the next event after `index` on
    /// the CPU is not the probe at the end of a bulk allocation.
    fn probed(&mut self, index: usize) -> Option<usize> {
        let next = self.future.of_cpu(index)?;
        let What::BulkAlloc { pages } = self.events[next].what else {
            return None;
        };
        self.done[next] = true;
        self.tally.bulk_probed += u64::from(pages);
        Some(pages as usize)
    }

    /// Handles the end of a bulk allocation of `pages` pages that refilled no list. If the topmost
    /// `pages` pages of a derived list all leave the list without an event, the bulk allocation
    /// took them. Otherwise at least a part of the bulk allocation's pages were on a list before
    /// the recording and appear in no event.
    pub(super) fn bulk(&mut self, index: usize, cpu: u32, pages: u32) {
        self.tally.bulk_probed += u64::from(pages);
        let zones = u8::try_from(self.zones.len()).unwrap_or(u8::MAX);
        let places = (0..zones).rev().flat_map(|zone| {
            [0, 1, 2].map(|list| Place {
                cpu,
                zone,
                list: ListId(list),
            })
        });
        for place in places {
            let top = self.lists.above(place, None);
            let unseen = top.iter().take_while(|&&pfn| self.is_taken_unseen(pfn));
            let unseen: Vec<u64> = unseen.take(pages as usize).copied().collect();
            if unseen.len() == pages as usize {
                self.take_unseen(index, place, unseen, Vec::new());
                return;
            }
        }
        self.take_never_seen(index, cpu, pages);
    }

    /// Some of the `pages` pages of a bulk allocation are the topmost pages of the derived list of
    /// unmovable pages, down to the first page that leaves this list with an event. Records that
    /// the bulk allocation took its other pages from those that no event shows.
    fn take_never_seen(&mut self, index: usize, cpu: u32, pages: u32) {
        let highest = u8::try_from(self.zones.len().saturating_sub(1)).unwrap_or(u8::MAX);
        let zone = self.zone_of_next(index).unwrap_or(highest);
        let list = ListId(UNMOVABLE);
        let top = self.lists.above(Place { cpu, zone, list }, None);
        let seen = top.iter().take_while(|&&pfn| self.is_taken_unseen(pfn));
        let seen = u32::try_from(seen.count()).unwrap_or(u32::MAX);
        let pages = pages.saturating_sub(seen);
        if pages > 0 {
            let action = Action::BulkNeverSeen { zone, pages };
            self.push_op(index, cpu, action, Vec::new());
        }
    }

    /// The zone of the next block that the thread of event `index` allocates, or `None` if the
    /// thread allocates no block within [`SOON`] events. The bulk allocation of event `index`
    /// probably used the same zone, because the thread's memory policy applies to both allocations.
    fn zone_of_next(&self, index: usize) -> Option<u8> {
        let pid = self.events[index].pid;
        let later = self.events.get(index + 1..)?.iter().take(SOON);
        let mut of_thread = later.filter(|event| event.pid == pid);
        let pfn = of_thread.find_map(|event| match event.what {
            What::Alloc { pfn, .. } => Some(pfn),
            _ => None,
        });
        self.zone(pfn?)
    }

    fn batch(&self, zone: u8) -> u64 {
        let lists = &self.zones[usize::from(zone)].lists;
        lists
            .iter()
            .flatten()
            .map(|lists| lists.batch)
            .max()
            .unwrap_or(63)
    }
}
