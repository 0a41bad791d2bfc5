//! Reads the answer with which a report begins, and the table of cost cards (low, middle and high
//! prices).

use super::{Names, each, text};
use crate::experiment::driver::data::{CardPair, Cards, FindingText, Headline, Headlines};
use crate::experiment::driver::text::{Known, Text};
use crate::plan::keys::builtin::{ANSWER, CARD_PAIR, CARDS, ROW};
use crate::plan::section::{Item, Section};
use crate::report::answer::ROWS_MAX;

/// The largest number of characters in the name of a row. With names of this length, a table of
/// three designs fits a mail.
const WHAT_MAX: usize = 21;
/// How many figures an answer can have at most.
const NUMBERS_MAX: usize = 5;

/// Reads the table `[answer]`.
pub(super) fn answer(item: &Item<'_>, names: &Names) -> Option<(Headlines, FindingText)> {
    let section = item.section()?;
    section.check(ANSWER);
    let sides = section.get("sides").and_then(|item| item.texts())?;
    let designs = designs(&section, names, sides.len());
    let rows = section.get("rows")?;
    let list = rows.list("tables")?;
    if list.len() > ROWS_MAX {
        rows.wrong(format!("an answer has at most {ROWS_MAX} metrics"));
    }
    let read = |item: &Item<'_>| row(&item.section()?, designs.as_deref(), names, sides.len());
    let finding = FindingText {
        sentence: fields(&section.get("sentence")?, names)?,
        further: section.get("further").and_then(|item| fields(&item, names)),
        numbers: numbers(&section, names),
    };
    let rows = list.iter().filter_map(read).collect();
    Some((Headlines { sides, rows }, finding))
}

/// Reads the key `designs`, a list with one design for each of the `sides` columns of the answer.
fn designs(section: &Section<'_>, names: &Names, sides: usize) -> Option<Vec<String>> {
    let designs = each(section, "designs", "texts", |item| names.design(item))?;
    if designs.len() != sides
        && let Some(item) = section.get("designs")
    {
        item.wrong(format!("{} designs for {sides} sides", designs.len()));
    }
    Some(designs)
}

fn row(
    section: &Section<'_>,
    usual: Option<&[String]>,
    names: &Names,
    sides: usize,
) -> Option<Headline> {
    section.check(ROW);
    let what = section.get("what")?;
    if what.text()?.chars().count() > WHAT_MAX {
        what.wrong(format!("this is longer than {WHAT_MAX} characters"));
    }
    let own = designs(section, names, sides);
    if own.is_none() && usual.is_none() {
        section.demand("designs", ROW);
    }
    Some(Headline {
        what: what.text()?.to_owned(),
        metric: names.metric(&section.get("metric")?)?,
        designs: own.or_else(|| usual.map(<[String]>::to_vec))?,
    })
}

/// Reads a text that can have fields. A field stands for a result of the runs.
fn fields(item: &Item<'_>, names: &Names) -> Option<Text> {
    let known = Known {
        metrics: &names.metrics,
        designs: &names.designs,
        facts: &names.facts,
    };
    let text = Text::parse(item.text()?, &known);
    text.map_err(|why| item.wrong(why)).ok()
}

fn numbers(section: &Section<'_>, names: &Names) -> Vec<(String, Text)> {
    let Some(item) = section.get("numbers") else {
        return Vec::new();
    };
    let pairs = item.pairs().unwrap_or_default();
    if pairs.len() > NUMBERS_MAX {
        item.wrong(format!("an answer has at most {NUMBERS_MAX} numbers"));
    }
    let number =
        |[label, text]: &[Item<'_>; 2]| Some((label.text()?.to_owned(), fields(text, names)?));
    pairs.iter().filter_map(number).collect()
}

/// Reads the table `[cards]`, which describes a table with low, middle and high prices.
pub(super) fn cards(item: &Item<'_>, names: &Names) -> Option<Cards> {
    let section = item.section()?;
    section.check(CARDS);
    let switch = |key| section.get(key).and_then(|item| item.switch());
    let pair = |item: &Item<'_>| card_pair(&item.section()?, names);
    let column = |[head, cell]: &[Item<'_>; 2]| {
        let cell = Names::one(cell, "cell of this table", &names.cells)?;
        Some((head.text()?.to_owned(), cell.to_owned()))
    };
    let columns = section.get("columns").and_then(|item| item.pairs())?;
    Some(Cards {
        title: text(&section, "title")?,
        note: text(&section, "note").unwrap_or_default(),
        is_quick: switch("quick").unwrap_or(true),
        with_mid: switch("with_mid").unwrap_or(false),
        pairs: each(&section, "pairs", "tables", pair)?,
        columns: columns.iter().filter_map(column).collect(),
    })
}

fn card_pair(section: &Section<'_>, names: &Names) -> Option<CardPair> {
    section.check(CARD_PAIR);
    Some(CardPair {
        a: names.design(&section.get("a")?)?,
        b: names.design(&section.get("b")?)?,
        metrics: each(section, "metrics", "texts", |item| names.metric(item))?,
        machines: each(section, "machines", "texts", |item| names.machine(item)),
    })
}
