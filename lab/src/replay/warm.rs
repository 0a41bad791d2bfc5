//! Makes the plan of a replay (a list of steps for each CPU) from a recording that shows the
//! contents of the page lists. The plan starts at the moment when the recorder read
//! `/proc/zoneinfo`. The plan also contains operations that have no event of their own. The module
//! [`crate::exact`] derives these operations from other events. Examples are bulk allocations, and
//! frees of blocks that were allocated before the recording.

use std::collections::{BTreeMap, HashMap};

use plimsoll_mm::units::Order;
use plimsoll_recording::Event;

use super::plan::{Plan, PlannedOp, What, ZoneRequest};
use crate::exact::pages::lists::ListId;
use crate::exact::pages::memory::{mobility_of, order_of};
use crate::exact::pages::op::{Action, Op};
use crate::exact::pages::{History, State};

/// Makes the plan of a replay from `history`, the operations that the module [`crate::exact`]
/// derives from a recording. `events` are all events of the recording.
pub(super) fn plan(history: &History, events: &[Event]) -> Plan {
    let mut planner = Planner::new(&history.state);
    for op in &history.ops {
        planner.add(op, events);
    }
    let mut plan = planner.plan;
    (plan.ids, plan.streams) = planner.streams.into_iter().unzip();
    plan
}

struct Planner {
    plan: Plan,
    streams: BTreeMap<u32, Vec<PlannedOp>>,
    /// The allocated blocks. The key is the frame number of a block's first page. The value is the
    /// block's slot (its index in the plan) and its order.
    live: HashMap<u64, (u32, Order)>,
    start_ns: Option<u64>,
}

impl Planner {
    /// A plan without steps. It includes every CPU whose lists are known, even if the recording has
    /// no operation of that CPU.
    fn new(state: &State) -> Self {
        let lists = state.zones.iter().flat_map(|zone| (0..).zip(&zone.lists));
        let online = lists.filter(|(_, lists)| lists.is_some());
        Self {
            plan: Plan::default(),
            streams: online.map(|(cpu, _)| (cpu, Vec::new())).collect(),
            live: HashMap::new(),
            start_ns: None,
        }
    }

    fn add(&mut self, op: &Op, events: &[Event]) {
        let time_ns = events[op.event as usize].time_ns;
        let start_ns = *self.start_ns.get_or_insert(time_ns);
        let at = (op.cpu, time_ns.saturating_sub(start_ns));
        match op.action {
            Action::Alloc { zone, list, pfn } => self.alloc(at, of_list(zone, list), &[pfn]),
            Action::AllocDirect {
                zone,
                order,
                mobility,
                pfn,
            } => self.alloc(at, ask(zone, order, mobility), &[pfn]),
            Action::Bulk {
                zone,
                list,
                ref pfns,
            } => self.alloc(at, of_list(zone, list), pfns),
            Action::Free { zone, list, pfn } => self.free(at, of_list(zone, list), pfn, true),
            Action::FreeDirect { zone, order, pfn } => {
                self.free(at, ask(zone, order, 1), pfn, false);
            }
            // No other event shows the pages of this bulk allocation. Its only effect would be that
            // the page lists become a few pages shorter, so the plan omits it.
            Action::BulkNeverSeen { .. } => {}
            // The plan has no steps for these actions, because the simulated memory manager decides
            // when to perform them.
            Action::Refresh
            | Action::Drain { .. }
            | Action::Online(_)
            | Action::Reclaim { .. }
            | Action::Sleep { .. }
            | Action::Boost { .. }
            | Action::Shortage { .. } => {}
        }
    }

    fn alloc(&mut self, at: (u32, u64), ask: ZoneRequest, pfns: &[u64]) {
        let first = self.plan.slots;
        for &pfn in pfns {
            let slot = self.plan.slots;
            self.plan.slots += 1;
            self.plan.allocs += 1;
            if let Some((lost, _)) = self.live.insert(pfn, (slot, ask.order)) {
                // The recording shows a second allocation of this block, but the free before it was
                // lost. So the plan frees the block first.
                self.step(at, lost, What::Free(None));
            }
        }
        let count = self.plan.slots - first;
        if count > 1 && ask.order == Order::ZERO {
            self.step(at, first, What::Bulk(ask, count));
        } else {
            for slot in first..first + count {
                self.step(at, slot, What::Alloc(ask));
            }
        }
    }

    fn free(&mut self, at: (u32, u64), ask: ZoneRequest, pfn: u64, listed: bool) {
        let mobility = listed.then_some(ask.mobility);
        match self.live.remove(&pfn) {
            None => {
                self.plan.unmatched += 1;
                self.step(at, 0, What::FreeOld(ask));
            }
            Some((slot, whole)) if whole > ask.order => {
                let first = self.split(at, (slot, whole), ask.order, pfn);
                self.plan.frees += 1;
                self.step(at, first, What::Free(mobility));
            }
            Some((slot, _)) => {
                self.plan.frees += 1;
                self.step(at, slot, What::Free(mobility));
            }
        }
    }

    /// Splits an allocated block into blocks of `order`, because the recording has frees of parts
    /// of the block. Returns the slot of the first part, which begins at `pfn`.
    fn split(&mut self, at: (u32, u64), of: (u32, Order), order: Order, pfn: u64) -> u32 {
        let (slot, whole) = of;
        let first = self.plan.slots;
        self.step(at, slot, What::Split(order, first));
        let parts = whole.pages().0 / order.pages().0;
        self.plan.slots += parts;
        for part in 1..parts {
            let frame = pfn + u64::from(part * order.pages().0);
            self.live.insert(frame, (first + part, order));
        }
        first
    }

    fn step(&mut self, (cpu, at_ns): (u32, u64), slot: u32, what: What) {
        let stream = self.streams.entry(cpu).or_default();
        stream.push(PlannedOp { at_ns, slot, what });
    }
}

fn of_list(zone: u8, list: ListId) -> ZoneRequest {
    ask(zone, list.order(), list.mobility())
}

fn ask(zone: u8, order: u8, mobility: u8) -> ZoneRequest {
    ZoneRequest {
        zone: Some(zone),
        order: order_of(order),
        mobility: mobility_of(mobility),
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_mm::page::Mobility;
    use plimsoll_recording::What as Seen;

    use super::*;

    /// The plan of a recording in which CPU 3 performs `actions`: the first at 5 µs, then one every
    /// microsecond.
    fn planned(actions: Vec<Action>) -> Plan {
        let event = |at: usize| Event {
            time_ns: 5_000 + 1_000 * at as u64,
            cpu: 3,
            pid: 1,
            what: Seen::ExitMmap,
        };
        let events: Vec<Event> = (0..actions.len()).map(event).collect();
        let op = |(event, action)| Op {
            event,
            cpu: 3,
            action,
            moves: Vec::new(),
        };
        let history = History {
            state: State {
                zones: Vec::new(),
                first: 0,
            },
            ops: (0..).zip(actions).map(op).collect(),
        };
        plan(&history, &events)
    }

    const MOVABLE: ListId = ListId(1);

    fn alloc(pfn: u64) -> Action {
        let (zone, list) = (2, MOVABLE);
        Action::Alloc { zone, list, pfn }
    }

    fn free(list: ListId, pfn: u64) -> Action {
        Action::Free { zone: 2, list, pfn }
    }

    fn steps(plan: &Plan) -> Vec<(u64, u32, What)> {
        assert_eq!(plan.ids, [3]);
        let steps = plan.streams[0].iter();
        steps
            .map(|step| (step.at_ns, step.slot, step.what))
            .collect()
    }

    #[test]
    fn an_older_block_is_freed_although_nothing_shows_its_allocation() {
        let plan = planned(vec![alloc(7), free(MOVABLE, 9), free(MOVABLE, 7)]);
        assert_eq!((plan.allocs, plan.frees, plan.unmatched), (1, 1, 1));
        let ask = of_list(2, MOVABLE);
        let free = What::Free(Some(Mobility::Movable));
        assert_eq!(
            steps(&plan),
            [
                (0, 0, What::Alloc(ask)),
                (1_000, 0, What::FreeOld(ask)),
                (2_000, 0, free)
            ]
        );
    }

    #[test]
    fn a_bulk_allocation_is_one_step_and_its_pages_are_freed_one_by_one() {
        let unmovable = ListId(0);
        let bulk = Action::Bulk {
            zone: 2,
            list: unmovable,
            pfns: vec![40, 50, 60],
        };
        let plan = planned(vec![bulk, free(unmovable, 50)]);
        let ask = of_list(2, unmovable);
        let free = What::Free(Some(Mobility::Unmovable));
        assert_eq!(steps(&plan), [(0, 0, What::Bulk(ask, 3)), (1_000, 1, free)]);
    }

    #[test]
    fn a_block_that_is_freed_in_parts_is_split_first() {
        let pair = ListId(4);
        let whole = Action::Alloc {
            zone: 2,
            list: pair,
            pfn: 8,
        };
        let plan = planned(vec![whole, free(MOVABLE, 8), free(MOVABLE, 9)]);
        let free = What::Free(Some(Mobility::Movable));
        assert_eq!(
            steps(&plan),
            [
                (0, 0, What::Alloc(of_list(2, pair))),
                (1_000, 0, What::Split(Order::ZERO, 1)),
                (1_000, 1, free),
                (2_000, 2, free)
            ]
        );
        assert_eq!((plan.slots, plan.unmatched), (3, 0));
    }

    /// A block of four pages is freed in two parts of two pages, so the plan splits it. The second
    /// part begins two pages after the first.
    #[test]
    fn a_block_that_is_freed_in_parts_of_two_pages_is_split_into_such_parts() {
        let (four, two) = (ListId(7), ListId(4));
        let whole = Action::Alloc {
            zone: 2,
            list: four,
            pfn: 8,
        };
        let plan = planned(vec![whole, free(two, 8), free(two, 10)]);
        let parts = Order::new(1).expect("an order");
        let freed = What::Free(Some(Mobility::Movable));
        assert_eq!(
            steps(&plan),
            [
                (0, 0, What::Alloc(of_list(2, four))),
                (1_000, 0, What::Split(parts, 1)),
                (1_000, 1, freed),
                (2_000, 2, freed)
            ]
        );
        assert_eq!((plan.slots, plan.unmatched), (3, 0));
    }

    #[test]
    fn a_block_whose_free_was_not_seen_goes_back_before_it_is_handed_out_again() {
        let plan = planned(vec![alloc(7), alloc(7)]);
        let ask = of_list(2, MOVABLE);
        let expected = [What::Alloc(ask), What::Free(None), What::Alloc(ask)];
        let what: Vec<What> = steps(&plan).into_iter().map(|(_, _, what)| what).collect();
        assert_eq!(what, expected);
    }

    #[test]
    fn a_block_that_is_freed_past_the_lists_comes_to_no_list() {
        let direct = Action::FreeDirect {
            zone: 2,
            order: 0,
            pfn: 7,
        };
        let plan = planned(vec![alloc(7), direct]);
        let ask = of_list(2, MOVABLE);
        let expected = [(0, 0, What::Alloc(ask)), (1_000, 0, What::Free(None))];
        assert_eq!(steps(&plan), expected);
        assert_eq!((plan.frees, plan.unmatched), (1, 0));
    }
}
