//! Performs the operations of a recording, and pairs Plimsoll's moves with the kernel's.

use std::collections::BTreeMap;

use plimsoll_mm::site::Site;

use super::follow::{Follow, Learnt};
use super::machine::Hold;
use super::op::{Action, Kind, Op};
use super::pair::{Amount, Pair};
use super::stage::Stage;

/// Performs `ops` and pairs Plimsoll's moves with the kernel's. After a difference, Plimsoll's
/// lists are set to the lengths of the kernel's, so that one difference does not cause others.
pub(super) fn perform(stage: &mut Stage, ops: &[Op], mut follow: Follow) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for (index, op) in ops.iter().enumerate() {
        if follow.is_hastened(index) {
            continue;
        }
        if let Action::BulkNeverSeen { zone, .. } = op.action {
            follow.note(op);
            let lens = follow.lens(zone, op.cpu);
            stage.set_lists(zone, op.cpu, &lens, Learnt::default());
            continue;
        }
        let holds = stage.perform(op);
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
                let state = stage.state(pair.zone, pair.cpu);
                let learnt = follow.learn(pair, &state, ops);
                correct(stage, pair, &follow, learnt);
            }
        }
        pairs.extend(found);
    }
    pairs
}

fn correct(stage: &mut Stage, pair: &Pair, follow: &Follow, learnt: Learnt) {
    let (zone, cpu) = (pair.zone, pair.cpu);
    let missing = i64::from(pair.kernel.pages) - i64::from(pair.ours.pages);
    let taken = if pair.kind == Kind::Refill {
        missing
    } else {
        -missing
    };
    stage.take_from_zone(zone, cpu, taken);
    stage.set_lists(zone, cpu, &follow.lens(zone, cpu), learnt);
}

fn pair(op_index: usize, op: &Op, holds: &[Hold]) -> Vec<Pair> {
    let mut amounts: BTreeMap<(u8, Kind), [Amount; 2]> = BTreeMap::new();
    for it in &op.moves {
        let amount = &mut amounts.entry((it.zone, it.kind)).or_default()[0];
        amount.pages += it.pages();
        amount.blocks += it.blocks();
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
        // The periodic work makes both, and the kernel's events do not tell one from the other.
        Site::Decay | Site::DrainRemoteNode => Some(Kind::Decay),
        Site::Drain => Some(Kind::Drain),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exact::pages::lists::ListId;
    use crate::exact::pages::op::Move;

    /// In Linux both belong to `vmstat_update`, so the recording shows both as decays.
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
