//! The keys that only the workloads of built-in experiments have.

use super::{Key, Kind, key, required};

/// The keys at the top of an experiment file that are valid only with workloads of built-in
/// experiments.
pub const TOP: [&str; 8] = [
    "quick",
    "on",
    "compare",
    "answer",
    "tables",
    "tables_elsewhere",
    "cards",
    "causes",
];

/// The keys at the top of an experiment file that are not valid with workloads of built-in
/// experiments.
pub const NOT_TAKEN: [&str; 8] = [
    "length_ms",
    "seeds",
    "jitter",
    "card",
    "knobs",
    "prices",
    "sweep",
    "timeline",
];

/// The keys of the table `[compare]`.
pub const COMPARE: &[Key] = &[
    required(
        "pairs",
        Kind::Pairs,
        "pairs of labels of designs, [A, B]: B is compared with A; \"*\" as B is every other design",
    ),
    key(
        "metrics",
        Kind::Texts,
        "the metrics that get verdicts; default: all",
    ),
];

/// The keys of the table `[answer]` of an experiment file. This table describes the answer to the
/// experiment's question, with which a report begins.
pub const ANSWER: &[Key] = &[
    required(
        "sides",
        Kind::Texts,
        "the heads of the columns of the table with which a report begins; the first is the base",
    ),
    key(
        "designs",
        Kind::Texts,
        "the label of the design of each side, for the rows that do not name their own",
    ),
    required("rows", Kind::Tables(ROW), "the metrics, at most three"),
    required(
        "sentence",
        Kind::Text,
        "the answer in one sentence; fields in braces show what the runs measured",
    ),
    key(
        "further",
        Kind::Text,
        "sentences after the answer, with fields",
    ),
    key(
        "numbers",
        Kind::Pairs,
        "at most five numbers that support the answer: [label, text with fields]",
    ),
];

/// The keys of one row of the table `[answer]`. A row shows one metric.
pub const ROW: &[Key] = &[
    required(
        "what",
        Kind::Text,
        "what the metric measures, in at most 21 characters",
    ),
    required("metric", Kind::Text, "the name of the metric"),
    key(
        "designs",
        Kind::Texts,
        "the label of the design of each side; default: the designs of the answer",
    ),
];

/// The keys of the table `[cards]`, which compares designs at the ends of all price ranges.
pub const CARDS: &[Key] = &[
    required("title", Kind::Text, "the title of the table"),
    key("note", Kind::Text, "the note under the title"),
    key(
        "quick",
        Kind::Switch,
        "whether the runs are those of a quick run; default: true",
    ),
    key(
        "with_mid",
        Kind::Switch,
        "whether the table also has the middle card; default: false",
    ),
    required(
        "pairs",
        Kind::Tables(CARD_PAIR),
        "the designs and metrics to compare at each card",
    ),
    required(
        "columns",
        Kind::Pairs,
        "the columns: [head, cell], where a cell is card, a, b, metric, ratio, verdict, or a cell \
         of the workload",
    ),
];

/// The keys of a pair of designs that the table `[cards]` compares.
pub const CARD_PAIR: &[Key] = &[
    required("a", Kind::Text, "the label of design A, the base"),
    required("b", Kind::Text, "the label of design B"),
    required("metrics", Kind::Texts, "the metrics to compare"),
    key(
        "machines",
        Kind::Texts,
        "the machines whose reports have the pair; default: all",
    ),
];

/// The keys of a figure in a table `[[published]]`.
pub const FIGURE: &[Key] = &[
    required("what", Kind::Text, "the published quantity in a few words"),
    required("metric", Kind::Text, "the name of the metric"),
    key(
        "designs",
        Kind::Texts,
        "the labels of the designs; default: those of the table `[[published]]`",
    ),
    key(
        "values",
        Kind::Numbers,
        "the published value of each design, in the unit of the metric",
    ),
    key(
        "change_percent",
        Kind::Numbers,
        "the published change from the first design to the second, in percent, in place of values",
    ),
    key(
        "basis",
        Kind::Choice(&["independent", "fitted", "construction"]),
        "whether our figure depends on the published one; default: independent",
    ),
    key(
        "why",
        Kind::Text,
        "the cause of the difference between this figure and ours",
    ),
    key(
        "cause",
        Kind::Text,
        "the name of the cause in `[causes]`, in place of why",
    ),
];
