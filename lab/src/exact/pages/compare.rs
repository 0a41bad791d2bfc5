//! Performs the operations of a recording, and pairs Plimsoll's moves with the kernel's.

use std::collections::BTreeMap;

use plimsoll_mm::site::Site;

use super::follow::{Follow, Learnt};
use super::machine::Hold;
use super::op::{Kind, Op};
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
        Site::Decay => Some(Kind::Decay),
        Site::Drain | Site::DrainRemoteNode => Some(Kind::Drain),
        _ => None,
    }
}
