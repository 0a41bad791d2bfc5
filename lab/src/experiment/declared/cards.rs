//! The table of verdicts at each cost card. At a card, all prices of the simulated machine are at
//! the low end, in the middle or at the high end of their ranges. A verdict that changes between
//! cards is fragile.

use std::fmt::{Debug, Display};

use plimsoll_sim::profile::Card;

use super::{Results, Run};
use crate::error::Error;
use crate::measure::metric::Metric;
use crate::report::value::human_ratio;
use crate::report::{Table, VerdictRow};
use crate::run::options::Effort;

/// The declaration of a table with a row for each combination of a card, a pair of designs, and a
/// metric.
pub(in crate::experiment) struct Cards<S: 'static, K: 'static = ()> {
    pub(in crate::experiment) title: &'static str,
    pub(in crate::experiment) note: &'static str,
    /// The effort of the runs at the low and the high card.
    pub(in crate::experiment) effort: Effort,
    /// True if the table also has rows for the middle card, although the rest of the report already
    /// shows the results at that card.
    pub(in crate::experiment) with_mid: bool,
    /// Pairs of designs, A and B, each with the metrics on which A and B are compared.
    pub(in crate::experiment) pairs: &'static [CardPair<S>],
    /// The columns: for each, its head and the function that formats a cell from a row.
    pub(in crate::experiment) columns: &'static [CardColumn<K>],
}

type CardPair<S> = (&'static str, &'static str, fn(&S) -> Vec<Metric>);
pub(in crate::experiment) type CardColumn<K> = (&'static str, fn(&CardRow<'_, K>) -> String);

/// One row of the table.
pub(in crate::experiment) struct CardRow<'a, K> {
    card: Card,
    verdict: VerdictRow,
    /// The data that the experiment kept of the run of design B with the first seed, in addition to
    /// the run's sample.
    pub(in crate::experiment) kept: &'a K,
}

impl<S, K, D> Run<'_, S, K, D>
where
    S: Sync,
    K: Send,
    D: Clone + Debug + Display + Sync,
{
    /// Runs `designs` at `card`. Returns the workload, the results, and for each design what was
    /// kept of its run with the first seed.
    pub(in crate::experiment) fn at(
        &self,
        card: Card,
        effort: Effort,
        designs: &[D],
    ) -> Result<(S, Results, Vec<K>), Error> {
        let machine = self.options.on(self.machine);
        let scene = (self.declared.setup)(&machine, card, effort)?;
        let about = format!("card {}", card.name());
        let (results, kept) = self.further(&about, &scene, designs)?;
        Ok((scene, results, kept))
    }

    /// Makes the declared table. Returns `None` if the experiment declares no such table, or if
    /// this report shows only one card ([`Run::has_cards`]).
    pub(in crate::experiment) fn cards(&self) -> Result<Option<Table>, Error> {
        let Some(cards) = self.declared.cards.filter(|_| self.has_cards()) else {
            return Ok(None);
        };
        let names = cards.pairs.iter().flat_map(|(a, b, _)| [*a, *b]);
        let designs = self.named(&names.collect::<Vec<_>>());
        let low = self.at(Card::Low, cards.effort, &designs)?;
        let high = self.at(Card::High, cards.effort, &designs)?;
        let mut rows = lines(cards, Card::Low, (&low.0, &low.1, &low.2));
        if cards.with_mid {
            let mid = (&self.scene, &self.results, &self.kept);
            rows.extend(lines(cards, Card::Mid, mid));
        }
        rows.extend(lines(cards, Card::High, (&high.0, &high.1, &high.2)));
        let heads: Vec<&str> = cards.columns.iter().map(|(head, _)| *head).collect();
        let cells = |row: &CardRow<'_, K>| {
            let columns = cards.columns.iter();
            columns.map(|(_, cell)| cell(row)).collect()
        };
        let table = Table::of(cards.title, cards.note, &heads, &rows, cells);
        Ok(Some(table))
    }
}

/// The rows of one card, in the order of the pairs.
fn lines<'a, S, K>(
    cards: &Cards<S, K>,
    card: Card,
    (scene, results, kept): (&S, &Results, &'a Vec<K>),
) -> Vec<CardRow<'a, K>> {
    let of_pair = |(a, b, metrics): &CardPair<S>| {
        let kept = &kept[results.position(b)];
        let verdicts = results.verdicts((*a, *b), &metrics(scene)).into_iter();
        verdicts.map(move |verdict| CardRow {
            card,
            verdict,
            kept,
        })
    };
    cards.pairs.iter().flat_map(of_pair).collect()
}

// The functions that format the cells of a row, for use in [`Cards::columns`].

pub(in crate::experiment) fn card<K>(row: &CardRow<'_, K>) -> String {
    row.card.name().to_owned()
}

pub(in crate::experiment) fn a<K>(row: &CardRow<'_, K>) -> String {
    row.verdict.a.clone()
}

pub(in crate::experiment) fn b<K>(row: &CardRow<'_, K>) -> String {
    row.verdict.b.clone()
}

pub(in crate::experiment) fn metric<K>(row: &CardRow<'_, K>) -> String {
    row.verdict.metric.name.to_string()
}

pub(in crate::experiment) fn ratio<K>(row: &CardRow<'_, K>) -> String {
    human_ratio(&row.verdict.comparison.ratio)
}

pub(in crate::experiment) fn verdict<K>(row: &CardRow<'_, K>) -> String {
    row.verdict.comparison.verdict.to_string()
}
