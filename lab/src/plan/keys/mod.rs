//! The keys of an experiment file, declared once as data. The reader refuses every other key. The
//! template and the JSON Schema also use these declarations.

pub mod builtin;

/// A key in a table of an experiment file.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The key.
    pub name: &'static str,
    /// The kind of value that the key takes.
    pub kind: Kind,
    /// True if the key must be present in the file or table.
    pub required: bool,
    /// A description in one line, which includes the default value.
    pub about: &'static str,
}

/// A kind of value.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A whole number. The first number is the smallest and the second is the largest allowed
    /// value.
    Whole(u64, u64),
    /// A number that is not negative.
    Number,
    /// `true` or `false`.
    Switch,
    /// A text that is not empty.
    Text,
    /// One of these texts.
    Choice(&'static [&'static str]),
    /// A list of texts.
    Texts,
    /// A time, such as `"2s"`.
    Time,
    /// A list of CPUs, such as `"4-7,9"`.
    Cpus,
    /// A table of knobs with whole numbers.
    Knobs,
    /// A table of prices to scale, each with its factor.
    Prices,
    /// The table of the workload: its name and its parameters.
    Workload,
    /// The table of the sweep. It has these keys, and a key for each axis of the sweep.
    Sweep(&'static [Key]),
    /// A list of tables with these keys.
    Tables(&'static [Key]),
    /// A table with these keys.
    Table(&'static [Key]),
    /// A list of pairs of texts.
    Pairs,
    /// A number, or a list of numbers. The numbers can be negative.
    Numbers,
    /// A table of those numeric settings of the workload that have other values in a quick run.
    Quick,
    /// For each machine, a table of those numeric settings of the workload that have other values
    /// on this machine.
    On,
    /// A table whose values are texts. The reader allows any keys in it.
    Named,
}

/// The version of the format of experiment files.
pub const SCHEMA: u64 = 1;

const fn key(name: &'static str, kind: Kind, about: &'static str) -> Key {
    Key {
        name,
        kind,
        required: false,
        about,
    }
}

const fn required(name: &'static str, kind: Kind, about: &'static str) -> Key {
    Key {
        required: true,
        ..key(name, kind, about)
    }
}

/// The states that memory can have when a run begins.
const MEMORY: Kind = Kind::Choice(&["fresh", "aged", "fragmented"]);
/// The price cards: the low end, the middle and the high end of every price range.
const CARD: Kind = Kind::Choice(&["low", "mid", "high"]);

/// The keys at the top of an experiment file, in the order in which the template lists them.
pub const FILE: &[Key] = &[
    required(
        "schema",
        Kind::Whole(SCHEMA, SCHEMA),
        "the version of the format",
    ),
    required("name", Kind::Text, "the name in the titles of the reports"),
    key(
        "question",
        Kind::Text,
        "the question that the experiment answers",
    ),
    required(
        "machines",
        Kind::Texts,
        "built-in machines (`plimsoll machines`), or profile files relative to this file",
    ),
    required(
        "workload",
        Kind::Workload,
        "what the machine does: a name, and parameters that have defaults",
    ),
    key(
        "memory",
        MEMORY,
        "the state of free memory when a run begins; what the workload does not need is then in \
         use; default: all memory is free",
    ),
    key(
        "length_ms",
        Kind::Whole(1, 3_600_000),
        "virtual milliseconds of each run; default: 1500, or five intervals of the vmstat work if \
         the designs differ in it",
    ),
    key(
        "seeds",
        Kind::Whole(1, 10_000),
        "every design runs with seeds 1 to this number; default: 6, the fewest that give a verdict",
    ),
    key(
        "jitter",
        Kind::Switch,
        "whether interrupts, softirqs and stolen time disturb the CPUs; default: true",
    ),
    key(
        "card",
        CARD,
        "prices at the low end, in the middle or at the high end of their ranges; default: mid",
    ),
    key(
        "knobs",
        Kind::Knobs,
        "knobs of all designs (`plimsoll knobs`); a name in Linux takes the unit of Linux",
    ),
    key(
        "prices",
        Kind::Prices,
        "factors of prices (`plimsoll machines NAME`), 0.01 to 100; default: 1",
    ),
    required(
        "design",
        Kind::Tables(DESIGN),
        "the designs; each one after the first is compared with the first",
    ),
    key(
        "metrics",
        Kind::Texts,
        "the metrics to show; default: all, or in a sweep the work done, the contentions of zone \
         locks and their total wait",
    ),
    key(
        "published",
        Kind::Tables(PUBLISHED),
        "published figures, which the report shows beside ours",
    ),
    key(
        "quick",
        Kind::Quick,
        "the numbers of the workload that are others in a quick run",
    ),
    key(
        "on",
        Kind::On,
        "by machine, the numbers of the workload that are others on this machine",
    ),
    key(
        "compare",
        Kind::Table(builtin::COMPARE),
        "the pairs of designs that get verdicts",
    ),
    key(
        "answer",
        Kind::Table(builtin::ANSWER),
        "the answer with which a report begins",
    ),
    key(
        "tables",
        Kind::Texts,
        "the tables of a report, in their order: parts of the workload, or `cards`",
    ),
    key(
        "tables_elsewhere",
        Kind::Texts,
        "the tables of the reports on machines after the first; default: `tables`",
    ),
    key(
        "cards",
        Kind::Table(builtin::CARDS),
        "the table `cards`: verdicts at the low and the high card",
    ),
    key(
        "causes",
        Kind::Named,
        "causes of differences from published figures, by name",
    ),
    key(
        "sweep",
        Kind::Sweep(SWEEP),
        "axes: the experiment runs at every combination of their values",
    ),
    key(
        "timeline",
        Kind::Tables(MOMENT),
        "what happens at certain times of each run",
    ),
];

/// The keys of a table `[[design]]`, which describes one design of an experiment file.
pub const DESIGN: &[Key] = &[
    key(
        "name",
        Kind::Text,
        "the label in reports; default: the design with its knobs",
    ),
    required(
        "design",
        Kind::Text,
        "a base, variants, or a base with variants in place of its own (`plimsoll designs`)",
    ),
    key(
        "knobs",
        Kind::Knobs,
        "knobs of this design, in place of those of all designs",
    ),
];

/// The keys of a table `[[published]]`: one published figure, or the figures of one source.
pub const PUBLISHED: &[Key] = &[
    required("machine", Kind::Text, "the machine, as `machines` names it"),
    required(
        "source",
        Kind::Text,
        "where the value was published: author, date, and the place in the text",
    ),
    key("metric", Kind::Text, "the name of the metric"),
    key("design", Kind::Text, "the label of the design"),
    key(
        "value",
        Kind::Number,
        "the value, in the unit of the metric",
    ),
    key(
        "thread",
        Kind::Choice(&["stagger", "batching", "reaper", "counters", "selftest"]),
        "the thread on a mailing list, if the lab's page of misses has it",
    ),
    key(
        "designs",
        Kind::Texts,
        "the labels of the designs of all figures of this table",
    ),
    key(
        "figure",
        Kind::Tables(builtin::FIGURE),
        "the figures of this source, in place of metric, design and value",
    ),
];

/// The keys of the table `[sweep]`, apart from the keys that name an axis.
pub const SWEEP: &[Key] = &[
    key(
        "random",
        Kind::Whole(1, 10_000),
        "runs only this number of points of the grid, drawn at random",
    ),
    key(
        "seed",
        Kind::Whole(0, 1 << 62),
        "the seed of the random points; default: 1",
    ),
];

/// The keys of a table `[[timeline]]`, which says what happens at one time of each run.
pub const MOMENT: &[Key] = &[
    required(
        "at",
        Kind::Time,
        "virtual time since the beginning of the run; at 0s, before the workload starts",
    ),
    key(
        "offline",
        Kind::Cpus,
        "CPUs that go offline; their workers move to other CPUs and stay there",
    ),
    key("online", Kind::Cpus, "CPUs that come back online"),
    key("set", Kind::Knobs, "knobs that get other values"),
    key(
        "designs",
        Kind::Texts,
        "the labels of the designs in which `set` happens; default: all",
    ),
];
