//! Performs the operations of a recording on Plimsoll's allocator. Pairs each of Plimsoll's moves
//! of pages, between page lists and a zone, with the corresponding move of the kernel.

use std::collections::BTreeMap;

use plimsoll_mm::site::Site;

use super::follow::{Follow, Learnt};
use super::machine::Hold;
use super::op::{Action, Kind, Op};
use super::pair::{Amount, Pair};
use super::stand_in::StandIn;

/// Performs `ops` and pairs each move of pages that Plimsoll makes with the kernel's move. After
/// each difference, gives Plimsoll's lists the lengths of the kernel's lists, so that one
/// difference does not cause other differences.
pub(super) fn perform(stand_in: &mut StandIn, ops: &[Op], mut follow: Follow) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for (index, op) in ops.iter().enumerate() {
        if follow.is_hastened(index) {
            continue;
        }
        if let Action::BulkNeverSeen { zone, .. } = op.action {
            follow.note(op);
            let lens = follow.lens(zone, op.cpu);
            stand_in.set_lists(zone, op.cpu, &lens, Learnt::default());
            continue;
        }
        let holds = stand_in.perform(op);
        if op.moves.is_empty() && holds.is_empty() {
            follow.note(op);
            continue;
        }
        let mut found = pair(index, op, &holds);
        for pair in &mut found {
            pair.unknown = follow.depends_on_before(pair) || follow.was_used(pair);
        }
        follow.note(op);
        for pair in &found {
            follow.note_move(pair);
            if !pair.is_same() {
                let state = stand_in.state(pair.zone, pair.cpu);
                let learnt = follow.learn(pair, &state, ops);
                correct(stand_in, pair, &follow, learnt);
            }
        }
        pairs.extend(found);
    }
    pairs
}

fn correct(stand_in: &mut StandIn, pair: &Pair, follow: &Follow, learnt: Learnt) {
    let (zone, cpu) = (pair.zone, pair.cpu);
    let missing = i64::from(pair.kernel.pages) - i64::from(pair.ours.pages);
    let taken = if pair.kind == Kind::Refill {
        missing
    } else {
        -missing
    };
    stand_in.take_from_zone(zone, cpu, taken);
    stand_in.set_lists(zone, cpu, &follow.lens(zone, cpu), learnt);
}

fn pair(op_index: usize, op: &Op, holds: &[Hold]) -> Vec<Pair> {
    let mut amounts: BTreeMap<(u8, Kind), [Amount; 2]> = BTreeMap::new();
    for transfer in &op.moves {
        let amount = &mut amounts.entry((transfer.zone, transfer.kind)).or_default()[0];
        amount.pages += transfer.pages();
        amount.blocks += transfer.blocks();
    }
    for hold in holds {
        let Some(kind) = kind(hold.site) else {
            continue;
        };
        let zone = u8::try_from(hold.zone).unwrap_or(u8::MAX);
        let amount = &mut amounts.entry((zone, kind)).or_default()[1];
        amount.pages += hold.pages;
        amount.blocks += hold.blocks;
    }
    amounts
        .into_iter()
        .filter(|(_, sides)| *sides != [Amount::default(); 2])
        .map(|((zone, kind), [kernel, ours])| Pair {
            op: op_index,
            cpu: op.cpu,
            zone,
            kind,
            kernel,
            ours,
            unknown: false,
        })
        .collect()
}

fn kind(site: Site) -> Option<Kind> {
    match site {
        Site::Refill => Some(Kind::Refill),
        Site::Spill => Some(Kind::Spill),
        // The periodic work (`vmstat_update`) lets lists decay: it lowers `high` and returns the
        // pages above it. It also drains lists of remote nodes. The kernel's events do not
        // distinguish decays from drains of remote lists, so both count as decays.
        Site::Decay | Site::DrainRemoteNode => Some(Kind::Decay),
        Site::Drain => Some(Kind::Drain),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_mm::design::Design;

    use crate::exact::pages::lists::{LISTS, ListId};
    use crate::exact::pages::op::Move;
    use crate::exact::pages::stand_in::{Knobs, Start};
    use crate::exact::pages::zoneinfo::ZoneInfo;

    /// Makes a machine with one CPU and one zone with 8,192 free pages. The CPU's lists start with
    /// 20 movable pages, whose frames are unknown because no event has shown them.
    fn twenty_listed() -> (StandIn, Follow) {
        let zone = ZoneInfo {
            name: "DMA32".to_owned(),
            managed: 1 << 14,
            free: 1 << 13,
            ..ZoneInfo::default()
        };
        let knobs = Knobs {
            min_free_kib: 4096,
            high_fraction: 0,
            nodes: vec![0],
            offline: Vec::new(),
            cache_slice: None,
        };
        let mut stand_in = StandIn::new(Design::LINUX_6_12, &[zone], &knobs).expect("a sound zone");
        let mut blocks = [0; LISTS];
        blocks[1] = 20;
        let start = Start {
            high: 100,
            blocks,
            ..Start::default()
        };
        stand_in.seed(0, 0, &start).expect("memory in use");
        let mut follow = Follow::default();
        follow.begin((0, 0), blocks, (31, 100), ListId(1));
        follow.set_never_seen((0, 0), 20);
        (stand_in, follow)
    }

    fn op(action: Action, moves: Vec<Move>) -> Op {
        Op {
            event: 0,
            cpu: 0,
            action,
            moves,
        }
    }

    /// In the kernel, a bulk allocation can take pages from a page list although no event has shown
    /// that these pages are on the list. Plimsoll's lists must then become shorter at once.
    /// Otherwise they would reach `high` too early from then on, and spill pages to the zone.
    #[test]
    fn a_bulk_allocation_of_pages_that_no_event_shows_shortens_plimsolls_lists() {
        let (mut stand_in, follow) = twenty_listed();
        let bulk = Action::BulkNeverSeen { zone: 0, pages: 4 };
        let pairs = perform(&mut stand_in, &[op(bulk, Vec::new())], follow);
        assert_eq!(
            (pairs.len(), stand_in.listed(0), stand_in.refused),
            (0, 16, 0)
        );
    }

    /// After a move of pages that differs from the kernel's, Plimsoll's zone gets the pages that
    /// only the kernel returned, and loses the pages that only the kernel took. Otherwise the
    /// number of free pages would reach a watermark earlier or later than in the kernel.
    #[test]
    fn a_difference_is_made_up_for_in_the_zone() {
        let moved = |kind| {
            let mut moved = Move::new(kind, 0);
            (0..10).for_each(|_| moved.add(ListId(1)));
            vec![moved]
        };
        let free_after = |action, kind| {
            let (mut stand_in, follow) = twenty_listed();
            let pairs = perform(&mut stand_in, &[op(action, moved(kind))], follow);
            assert!(pairs.len() == 1 && pairs[0].ours == Amount::default());
            stand_in.free(0)
        };
        let taken = Action::Alloc {
            zone: 0,
            list: ListId(1),
            pfn: 7,
        };
        assert_eq!(free_after(Action::Refresh, Kind::Decay), (1 << 13) + 10);
        assert_eq!(free_after(taken, Kind::Refill), (1 << 13) - 10);
    }

    /// In Linux, `vmstat_update` lets lists decay (lowers `high` and returns the pages above it),
    /// and also returns a batch of pages to a remote node. A recording does not distinguish the
    /// return from a decay, so the replay counts the return as a decay.
    #[test]
    fn a_batch_returned_to_a_remote_node_is_a_decay() {
        let mut moved = Move::new(Kind::Decay, 0);
        (0..31).for_each(|_| moved.add(ListId(1)));
        let refresh = Op {
            event: 0,
            cpu: 0,
            action: Action::Refresh,
            moves: vec![moved],
        };
        let hold = Hold {
            zone: 0,
            site: Site::DrainRemoteNode,
            pages: 31,
            blocks: 31,
        };
        let pairs = pair(0, &refresh, &[hold]);
        assert!(pairs.len() == 1 && pairs[0].is_same(), "{pairs:?}");
    }
}
