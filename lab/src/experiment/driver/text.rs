//! The sentences of an answer. Fields in braces stand for results of the runs.
//!
//! A field is a fact or a value. A part of the report gives a fact, such as `{family}`. A value
//! consists of a word, a metric, a colon, and one design or two: `{median ran_ns: flat}` is the
//! median with one design, and `{ratio ran_ns: flat -> tree}` compares the second design with the
//! first. `{number pages}` is a number of the workload.

use std::collections::BTreeMap;

use super::numbers::Numbers;
use crate::catalog::names::nearest;
use crate::error::Error;
use crate::experiment::driver::finding::{effect, level};
use crate::experiment::driver::results::Results;
use crate::measure::metric::Metric;
use crate::report::value::{NOTHING, human};

/// A text with fields. A field stands for a result of the runs.
pub(in crate::experiment) struct Text(Vec<Piece>);

enum Piece {
    Plain(String),
    Fact(String),
    Number(String),
    Value(Value),
}

struct Value {
    how: &'static How,
    decimals: usize,
    metric: String,
    /// The metric by which `metric` is divided. `None` if the value is of one metric only.
    of: Option<String>,
    a: String,
    b: Option<String>,
}

/// The word with which a field begins. It says which value the field shows.
struct How {
    word: &'static str,
    /// A description of the value, for errors.
    about: &'static str,
    takes: Takes,
    has_decimals: bool,
}

/// The form of the operands after the first word of a field. A field is a placeholder for a result.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    /// A metric and a design, as in `METRIC: DESIGN`.
    One,
    /// A metric and two designs, as in `METRIC: A -> B`.
    Pair,
    /// Two metrics and a design, as in `METRIC / METRIC: DESIGN`. The first metric is divided by
    /// the second.
    Quotient,
}

impl Takes {
    const fn form(self) -> &'static str {
        match self {
            Self::One => "METRIC: DESIGN",
            Self::Pair => "METRIC: A -> B",
            Self::Quotient => "METRIC / METRIC: DESIGN",
        }
    }
}

const fn how(word: &'static str, takes: Takes, about: &'static str) -> How {
    How {
        word,
        about,
        takes,
        has_decimals: false,
    }
}

const fn rounded(word: &'static str, takes: Takes, about: &'static str) -> How {
    How {
        has_decimals: true,
        ..how(word, takes, about)
    }
}

/// The words with which a field of a text can begin. A field is replaced by a result.
const WORDS: [How; 10] = [
    how("median", Takes::One, "the median over the seeds"),
    how("interval", Takes::One, "the median with its interval"),
    how("mean", Takes::One, "the mean over the seeds"),
    how("max", Takes::One, "the largest value of any seed"),
    how("ratio", Takes::Pair, "B divided by A, with its interval"),
    how("effect", Takes::Pair, "what B does: lowers, raises, …"),
    how("level", Takes::Pair, "what B is: lower, higher, …"),
    rounded("change", Takes::Pair, "the change from A to B in percent"),
    rounded("times", Takes::Pair, "how many times as much A is as B"),
    rounded("share", Takes::Quotient, "the quotient in percent"),
];

/// The names that the fields of a sentence can contain. A field is replaced by a result of the
/// runs.
pub(super) struct Known<'a> {
    pub(super) metrics: &'a Metrics,
    pub(super) designs: &'a [String],
    pub(super) facts: &'a [&'a str],
}

/// The metrics of an experiment.
pub(super) struct Metrics {
    /// The names of the metrics of all full and quick runs, on all machines of the experiment.
    pub(super) all: Vec<String>,
    /// For each machine, the parameters (whole numbers) of the workload in a full run and in a
    /// quick run, as the experiment file gives them.
    pub(super) numbers: Vec<Numbers>,
}

impl Metrics {
    /// Checks that the experiment has the metric `metric`. The name can contain a number of the
    /// workload in parentheses, as in `select_at_(most)_ns`.
    ///
    /// # Errors
    /// [`Error::Unknown`] with the nearest names, if there is no such metric.
    pub(super) fn check(&self, metric: &str) -> Result<(), Error> {
        let all: Vec<&str> = self.all.iter().map(String::as_str).collect();
        for numbers in &self.numbers {
            let filled = numbers.fill(metric);
            if !all.contains(&filled.as_str()) {
                return Err(Error::unknown("metric", &filled, &all));
            }
        }
        Ok(())
    }
}

/// The results of the runs on one machine, from which the fields of a text are filled in.
pub(super) struct Measured<'a> {
    pub(super) results: &'a Results,
    /// The metrics that the runs have measured.
    pub(super) metrics: &'a [Metric],
    pub(super) facts: &'a BTreeMap<&'a str, String>,
    /// The parameters (whole numbers) that the experiment file gives to the workload.
    pub(super) numbers: &'a Numbers,
}

impl Text {
    /// Reads a text that can have fields. A field stands for a result of the runs.
    ///
    /// # Errors
    /// A text that describes the first mistake in a field, and suggests the nearest name.
    pub(super) fn parse(text: &str, known: &Known<'_>) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(start) = rest.find('{') {
            let inside = &rest[start + 1..];
            let end = inside.find(['{', '}']);
            let Some(end) = end.filter(|end| inside[*end..].starts_with('}')) else {
                let field = &inside[..end.unwrap_or(inside.len())];
                return Err(format!("`{{{field}` has no closing brace"));
            };
            pieces.push(Piece::Plain(rest[..start].to_owned()));
            pieces.push(field(&inside[..end], known)?);
            rest = &inside[end + 1..];
        }
        pieces.push(Piece::Plain(rest.to_owned()));
        Ok(Self(pieces))
    }

    /// The text with a result in the place of each field. If the runs have not measured a field's
    /// metric, the field becomes a dash.
    pub(super) fn fill(&self, measured: &Measured<'_>) -> String {
        let Measured {
            results,
            metrics,
            facts,
            numbers,
        } = measured;
        let find = |name: &str| {
            let name = numbers.fill(name);
            metrics.iter().find(|metric| metric.name == name)
        };
        let filled = self.0.iter().map(|piece| match piece {
            Piece::Plain(text) => text.clone(),
            Piece::Fact(name) => facts.get(name.as_str()).cloned().unwrap_or_default(),
            Piece::Number(name) => numbers.get(name).to_string(),
            Piece::Value(value) => {
                let of = value
                    .of
                    .as_deref()
                    .map_or(Some(None), |of| find(of).map(Some));
                let both = find(&value.metric).zip(of);
                both.map_or_else(
                    || NOTHING.to_owned(),
                    |(metric, of)| value.show(results, metric, of),
                )
            }
        });
        filled.collect()
    }
}

fn field(text: &str, known: &Known<'_>) -> Result<Piece, String> {
    let Some((head, designs)) = text.split_once(':') else {
        if let Some(name) = text.strip_prefix("number ") {
            let numbers = &known.metrics.numbers[0];
            named("number", name, &numbers.names().collect::<Vec<_>>())?;
            return Ok(Piece::Number(name.to_owned()));
        }
        named("fact", text, known.facts)?;
        return Ok(Piece::Fact(text.to_owned()));
    };
    let (word, metrics) = head.trim().split_once(' ').unwrap_or((head, ""));
    let (word, decimals) = word
        .split_once('.')
        .map_or((word, None), |(word, decimals)| (word, Some(decimals)));
    let words: Vec<&str> = WORDS.iter().map(|of| of.word).collect();
    named("word", word, &words)?;
    let how = WORDS.iter().find(|of| of.word == word).expect("found");
    let form = || format!("`{{{text}}}`: write {word} {}", how.takes.form());
    let decimals = match (how.has_decimals, decimals) {
        (true, None) => 2,
        (true, Some(digits)) => digits
            .parse()
            .ok()
            .filter(|digits| *digits < 7)
            .ok_or_else(form)?,
        (false, None) => 0,
        (false, Some(_)) => return Err(form()),
    };
    let (metric, of) = match metrics.split_once('/') {
        Some((metric, of)) => (metric.trim(), Some(of.trim())),
        None => (metrics.trim(), None),
    };
    let (a, b) = match designs.split_once("->") {
        Some((a, b)) => (a.trim(), Some(b.trim())),
        None => (designs.trim(), None),
    };
    let is_whole = match how.takes {
        Takes::One => of.is_none() && b.is_none(),
        Takes::Pair => of.is_none() && b.is_some(),
        Takes::Quotient => of.is_some() && b.is_none(),
    };
    if !is_whole {
        return Err(form());
    }
    for name in [Some(metric), of].into_iter().flatten() {
        known
            .metrics
            .check(name)
            .map_err(|error| error.to_string())?;
    }
    for name in [Some(a), b].into_iter().flatten() {
        named("design", name, known.designs)?;
    }
    Ok(Piece::Value(Value {
        how,
        decimals,
        metric: metric.to_owned(),
        of: of.map(str::to_owned),
        a: a.to_owned(),
        b: b.map(str::to_owned),
    }))
}

/// Checks that `name` is one of `names`. If it is not, returns an error that offers the nearest
/// names.
fn named(kind: &str, name: &str, names: &[impl AsRef<str>]) -> Result<(), String> {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    if names.contains(&name) {
        return Ok(());
    }
    let near = nearest(name, &names);
    let offers = if near.is_empty() { names } else { near };
    if offers.is_empty() {
        return Err(format!(
            "no {kind} of a text is called `{name}`; there is none"
        ));
    }
    Err(format!(
        "no {kind} of a text is called `{name}`; there are {}",
        offers.join(", ")
    ))
}

impl Value {
    fn show(&self, results: &Results, metric: &Metric, of: Option<&Metric>) -> String {
        let (a, decimals) = (self.a.as_str(), self.decimals);
        let pair = (a, self.b.as_deref().unwrap_or(a));
        match self.how.word {
            "median" => results.show(a, metric),
            "interval" => results.show_interval(a, metric),
            "mean" => human(results.mean(a, metric), metric.unit),
            "max" => human(results.max(a, metric), metric.unit),
            "ratio" => results.show_ratio(pair, metric),
            "effect" => effect(results.compare(pair, metric).verdict).to_owned(),
            "level" => level(results.compare(pair, metric).verdict).to_owned(),
            "change" => {
                let percent = 100.0 * (results.ratio(pair, metric) - 1.0);
                format!("{percent:+.decimals$} %")
            }
            "times" => format!("{:.decimals$}", 1.0 / results.ratio(pair, metric)),
            "share" => {
                let whole = of.map_or(1.0, |of| results.median(a, of).max(1.0));
                format!("{:.decimals$} %", 100.0 * results.median(a, metric) / whole)
            }
            other => panic!("the word {other} has no meaning"),
        }
    }
}

/// The words with which fields can begin. Each word comes with the form of its field, and with a
/// description of the value that the field shows.
pub fn words() -> impl Iterator<Item = (String, &'static str)> {
    WORDS.iter().map(|how| {
        let decimals = if how.has_decimals { ".2" } else { "" };
        let field = format!("{{{}{decimals} {}}}", how.word, how.takes.form());
        (field, how.about)
    })
}
