//! The contents of an experiment's file, after the reader has looked up all names in the file.

use std::fmt;
use std::path::PathBuf;

use plimsoll_mm::design::Design;

use super::figures::Published;
use super::numbers::Numbers;
use super::text::Text;
use crate::catalog::designs;
use crate::error::Error;
use crate::report::Table;
use crate::run::aging::Memory;

/// An experiment as its file describes it. The reader has checked that every name in it exists.
pub(in crate::experiment) struct Data {
    /// The name that `plimsoll reproduce` accepts, and the title of the reports.
    pub(in crate::experiment) name: String,
    /// The question in one line.
    pub(in crate::experiment) question: String,
    /// The names of the machines in the file. A quick run uses only the first machine.
    pub(in crate::experiment) machines: Vec<String>,
    /// The folder of the file. The machines that the file names can be files in this folder.
    pub(super) folder: PathBuf,
    /// For each machine, the parameters (whole numbers) that the file gives to the workload.
    pub(super) numbers: Vec<OfMachine>,
    /// The state of memory when a run begins, if the workload lets the file choose it.
    pub(super) memory: Option<Memory>,
    /// The designs in the order of the file.
    pub(in crate::experiment) designs: Vec<Tried>,
    /// The pairs of designs that get verdicts.
    pub(super) pairs: Vec<Pair>,
    /// The names of the metrics that get verdicts. `None` stands for all metrics.
    pub(super) compared: Option<Vec<String>>,
    /// The names of the metrics that have rows in the report. `None` stands for all metrics.
    pub(super) shown: Option<Vec<String>>,
    pub(super) answer: Headlines,
    pub(super) finding: FindingText,
    pub(super) cards: Option<Cards>,
    /// The names of the tables in the report on the first machine.
    pub(super) tables: Vec<String>,
    /// The names of the tables in each report on a machine other than the first.
    pub(super) tables_elsewhere: Vec<String>,
    pub(in crate::experiment) published: Vec<Published>,
}

/// The parameters (whole numbers) that the experiment file gives to the workload on one machine.
#[derive(Clone, Debug)]
pub(super) struct OfMachine {
    /// The parameters for a full run of the workload.
    pub(super) full: Numbers,
    /// The parameters for a quick run of the workload.
    pub(super) quick: Numbers,
}

/// A design (one variant of each mechanism) that an experiment tries.
#[derive(Clone, Debug)]
pub(in crate::experiment) struct Tried {
    /// The label in reports.
    pub(in crate::experiment) name: String,
    pub(in crate::experiment) design: Design,
    /// The parameters (whole numbers) that the experiment file gives to the workload for this
    /// design.
    pub(in crate::experiment) numbers: Numbers,
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name)
    }
}

/// Makes a design for each element of `names`. An element consists of variants joined by `+`, and
/// becomes the label of its design. The design has these variants. For every other mechanism, it
/// has the variant of `base`.
pub(in crate::experiment) fn variants(
    base: &str,
    names: impl IntoIterator<Item = String>,
) -> Result<Vec<Tried>, Error> {
    let tried = |name: String| {
        Ok(Tried {
            design: designs::find(&format!("{base}+{name}"))?.design,
            name,
            numbers: Numbers::default(),
        })
    };
    names.into_iter().map(tried).collect()
}

/// Two designs, A and B, that the report compares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) a: String,
    /// The label of design B. `None` stands for every design except A.
    pub(super) b: Option<String>,
}

/// The metrics with which a report begins.
pub(super) struct Headlines {
    /// The heads of the columns, such as "Linux". There is a column for each design of a metric.
    /// The first column shows the design with which the others are compared.
    pub(super) sides: Vec<String>,
    pub(super) rows: Vec<Headline>,
}

/// A metric, and the design in each column of its row. The report of a quick run that does not
/// measure the metric leaves this row out.
pub(super) struct Headline {
    /// A few words for the quantity that the metric measures.
    pub(super) what: String,
    pub(super) metric: String,
    pub(super) designs: Vec<String>,
}

/// The texts from which the report's conclusion is made.
pub(super) struct FindingText {
    /// The answer in one sentence.
    pub(super) sentence: Text,
    /// The sentences after the answer.
    pub(super) further: Option<Text>,
    /// The numbers that support the answer, each with a label.
    pub(super) numbers: Vec<(String, Text)>,
}

/// The table of cost cards (low, middle and high prices), with a row for each combination of a
/// card, a pair of designs, and a metric.
pub(super) struct Cards {
    pub(super) title: String,
    pub(super) note: String,
    /// True if the runs with low and with high prices are as short as runs of a quick report.
    pub(super) is_quick: bool,
    /// True if the table also has rows for middle prices. The rest of the report already shows the
    /// results at these prices.
    pub(super) with_mid: bool,
    pub(super) pairs: Vec<CardPair>,
    /// The head of each column, and the name of the cells that the column shows.
    pub(super) columns: Vec<(String, String)>,
}

/// A pair of designs in the table of cards (low, middle and high prices), with the metrics on which
/// they are compared.
pub(super) struct CardPair {
    pub(super) a: String,
    pub(super) b: String,
    pub(super) metrics: Vec<String>,
    /// The machines whose reports compare A with B. `None` stands for all machines.
    pub(super) machines: Option<Vec<String>>,
}

/// A part of a report: tables, and *facts*, which are texts that the sentences of the answer can
/// quote.
#[derive(Default)]
pub(in crate::experiment) struct Made {
    pub(in crate::experiment) tables: Vec<Table>,
    /// The facts: a name, and a text that the sentences of the answer can quote by this name.
    pub(in crate::experiment) facts: Vec<(&'static str, String)>,
}

impl From<Table> for Made {
    fn from(table: Table) -> Self {
        Self {
            tables: vec![table],
            facts: Vec::new(),
        }
    }
}

impl From<Vec<Table>> for Made {
    fn from(tables: Vec<Table>) -> Self {
        Self {
            tables,
            facts: Vec::new(),
        }
    }
}

impl Made {
    /// Adds the fact `name`.
    pub(in crate::experiment) fn fact(mut self, name: &'static str, text: String) -> Self {
        self.facts.push((name, text));
        self
    }
}
