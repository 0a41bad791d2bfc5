//! The table of verdicts at each cost card. A card takes all prices of the simulated machine from
//! the low end, the middle or the high end of their ranges. A verdict that differs between cards
//! depends on how uncertain the prices are.

use plimsoll_sim::profile::Card;

use super::Run;
use super::data::{CardPair, Cards};
use crate::error::Error;
use crate::experiment::driver::results::Results;
use crate::report::value::human_ratio;
use crate::report::{Table, VerdictRow};
use crate::run::options::Effort;

/// The names of the cells that a row can have in the table of verdicts at each cost card. A
/// workload can add cells of its own.
pub(super) const CELLS: [&str; 6] = ["card", "a", "b", "metric", "ratio", "verdict"];

/// A row of the table that has verdicts at each cost card (low, middle or high prices).
struct Row<'a, K> {
    card: Card,
    verdict: VerdictRow,
    /// The data that the workload kept of one run, in addition to the run's sample. This run is the
    /// run of design B with the first seed.
    kept: &'a K,
}

impl<S: Sync, K: Send> Run<'_, S, K> {
    /// Makes the table of verdicts at each cost card (low, middle or high prices). Returns `None`
    /// if the file describes no such table, or if this report shows only one card
    /// ([`Run::has_cards`]).
    pub(super) fn cards(&self) -> Result<Option<Table>, Error> {
        let Some(cards) = self.filed.data.cards.as_ref().filter(|_| self.has_cards()) else {
            return Ok(None);
        };
        let effort = if cards.is_quick {
            Effort::Quick
        } else {
            Effort::Full
        };
        let names = cards.pairs.iter().flat_map(|pair| [&*pair.a, &*pair.b]);
        let designs = self.named(&names.collect::<Vec<_>>());
        let low = self.at(Card::Low, effort, &designs)?;
        let high = self.at(Card::High, effort, &designs)?;
        let mut rows = self.rows(cards, Card::Low, (&low.1, &low.2));
        if cards.with_mid {
            rows.extend(self.rows(cards, Card::Mid, (&self.results, &self.kept)));
        }
        rows.extend(self.rows(cards, Card::High, (&high.1, &high.2)));
        let heads: Vec<&str> = cards.columns.iter().map(|(head, _)| &**head).collect();
        let cells = |row: &Row<'_, K>| {
            let columns = cards.columns.iter();
            columns.map(|(_, cell)| self.cell(cell, row)).collect()
        };
        let table = Table::of(&*cards.title, &*cards.note, &heads, &rows, cells);
        Ok(Some(table))
    }

    /// The rows of the table for one card (low, middle or high prices), in the order of
    /// `cards.pairs`.
    fn rows<'a>(
        &self,
        cards: &Cards,
        card: Card,
        (results, kept): (&Results, &'a [K]),
    ) -> Vec<Row<'a, K>> {
        let is_here = |pair: &&CardPair| {
            let machines = pair.machines.as_ref();
            machines.is_none_or(|of| of.iter().any(|machine| machine == self.machine))
        };
        let of_pair = |pair: &CardPair| {
            let kept = &kept[results.position(&pair.b)];
            let verdicts = results.verdicts_of((&pair.a, Some(&pair.b)), |metric| {
                pair.metrics.iter().any(|name| *name == metric.name)
            });
            verdicts.into_iter().map(move |verdict| Row {
                card,
                verdict,
                kept,
            })
        };
        let pairs = cards.pairs.iter().filter(is_here);
        pairs.flat_map(of_pair).collect()
    }

    fn cell(&self, name: &str, row: &Row<'_, K>) -> String {
        let verdict = &row.verdict;
        match name {
            "card" => row.card.name().to_owned(),
            "a" => verdict.a.clone(),
            "b" => verdict.b.clone(),
            "metric" => verdict.metric.name.to_string(),
            "ratio" => human_ratio(&verdict.comparison.ratio),
            "verdict" => verdict.comparison.verdict.to_string(),
            own => {
                let mut cells = self.filed.code.cells.iter();
                let found = cells.find(|(name, _)| *name == own);
                let (_, cell) = found.expect("the reader knows the cells of the workload");
                cell(row.kept)
            }
        }
    }
}
