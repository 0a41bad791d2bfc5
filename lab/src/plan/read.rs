//! Reads a plan from the text of an experiment file.

use std::collections::BTreeMap;
use std::path::Path;

use plimsoll_sim::profile::Card;

use super::data::{
    Axis, AxisValue, DesignOf, Draw, Knobs, Moment, Plan, PublishedOf, Sweep, Target,
};
use super::keys::{DESIGN, FILE, Key, Kind, MOMENT, PUBLISHED, SWEEP, builtin};
use super::section::{Found, Item, Place, Section};
use super::source::{self, Mistake, error_of};
use super::text::{CpuList, Time};
use super::write::label_of;
use crate::catalog;
use crate::error::Error;
use crate::run::aging::Memory;
use crate::run::options::Jitter;

/// A plan together with the text of its file. With the text, later errors can show where a mistake
/// is.
#[derive(Debug)]
pub struct FromFile {
    /// The plan.
    pub plan: Plan,
    file: String,
    text: String,
    places: BTreeMap<String, Place>,
}

/// A part of a plan that is wrong, and the reason why it is wrong.
#[derive(Debug)]
pub struct Problem {
    /// The key, in an experiment file, of the part that is wrong.
    pub key: String,
    /// True if the key itself is wrong, and false if its value is wrong.
    pub on_key: bool,
    /// What is wrong.
    pub why: Error,
}

impl FromFile {
    /// Reads the plan in the file at `path`. Checks the form of the file, but not whether the names
    /// in it exist.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the file cannot be read, or if its form has mistakes. The error lists
    /// all of them.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let (file, text) = source::load(path)?;
        let mut from_file = Self::parse(&file, &text)?;
        from_file.plan.folder = path.parent().unwrap_or(Path::new("")).to_owned();
        Ok(from_file)
    }

    /// Reads the plan in `text`, the text of an experiment file. Errors name this file as `file`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the form of the text has mistakes. The error lists all of them.
    pub fn parse(file: &str, text: &str) -> Result<Self, Error> {
        let table = source::parse(file, text)?;
        let found = Found::default();
        let plan = plan(&Section::root(&found, &table));
        let (mistakes, places) = found.finish();
        if !mistakes.is_empty() {
            return Err(error_of(file, text, mistakes));
        }
        Ok(Self {
            plan,
            file: file.to_owned(),
            text: text.to_owned(),
            places,
        })
    }

    /// Makes an error that shows where in the file the causes of `problems` are.
    #[must_use]
    pub fn locate(&self, problems: &[Problem]) -> Error {
        let mistake = |problem: &Problem| {
            // If the file does not have the key, the error shows the nearest table above it.
            let mut key = problem.key.as_str();
            let place = loop {
                match (self.places.get(key), key.rfind(['.', '['])) {
                    (Some(place), _) => break Some(place),
                    (None, Some(at)) => key = &key[..at],
                    (None, None) => break None,
                }
            };
            let exact = key == problem.key;
            let span = place.map(|place| {
                if problem.on_key || !exact {
                    place.key.clone()
                } else {
                    place.value.clone()
                }
            });
            Mistake {
                span: span.unwrap_or(0..0),
                key: problem.key.clone(),
                why: problem.why.to_string(),
            }
        };
        error_of(
            &self.file,
            &self.text,
            problems.iter().map(mistake).collect(),
        )
    }
}

fn plan(root: &Section<'_>) -> Plan {
    root.check(FILE);
    root.refuse(
        &builtin::TOP,
        "this key has no effect with this workload; leave it out",
    );
    let whole = |key: &str| root.get(key).and_then(|item| whole(&item, FILE, key));
    let text = |key: &str| {
        root.get(key)
            .and_then(|item| item.text().map(str::to_owned))
    };
    let usual = Plan::default();
    // The plan does not contain the version of the format, because only one version is accepted.
    // This call only checks the version.
    let _ = whole("schema");
    let (workload, parameters) = root
        .get("workload")
        .map(|item| workload(&item))
        .unwrap_or_default();
    Plan {
        name: text("name").unwrap_or_default(),
        question: text("question").unwrap_or_default(),
        machines: root
            .get("machines")
            .and_then(|item| item.texts())
            .unwrap_or_default(),
        folder: usual.folder,
        workload,
        parameters,
        memory: root.get("memory").and_then(|item| item.parsed_memory()),
        length_ms: whole("length_ms"),
        seeds: whole("seeds").unwrap_or(usual.seeds),
        jitter: match root.get("jitter").and_then(|item| item.switch()) {
            Some(false) => Jitter::Off,
            _ => Jitter::On,
        },
        card: root
            .get("card")
            .and_then(|item| item.parsed_card())
            .unwrap_or(usual.card),
        knobs: root
            .get("knobs")
            .map(|item| knobs(&item))
            .unwrap_or_default(),
        prices: root
            .get("prices")
            .map(|item| prices(&item))
            .unwrap_or_default(),
        designs: tables(root, "design", DESIGN, design),
        metrics: root
            .get("metrics")
            .and_then(|item| item.texts())
            .unwrap_or_default(),
        published: tables(root, "published", PUBLISHED, published),
        sweep: root.get("sweep").and_then(|item| sweep(&item)),
        timeline: tables(root, "timeline", MOMENT, moment),
    }
}

impl Item<'_> {
    fn parsed_memory(&self) -> Option<Memory> {
        let memory = Memory::named(self.text()?);
        memory.map_err(|why| self.wrong(why.to_string())).ok()
    }

    fn parsed_card(&self) -> Option<Card> {
        self.parsed("low, mid or high in double quotes")
    }
}

/// The value of `item` as a whole number within the bounds that `declared` gives for `key`.
fn whole(item: &Item<'_>, declared: &[Key], key: &str) -> Option<u64> {
    let declared = declared.iter().find(|of| of.name == key);
    match declared.map(|of| of.kind) {
        Some(Kind::Whole(min, max)) => item.whole(min, max),
        _ => panic!("{key} is declared as a whole number"),
    }
}

/// Reads the list of tables at `key`, such as `[[design]]`. Checks the keys of each table against
/// `declared`. Returns the results of `read` for the tables.
fn tables<T>(
    root: &Section<'_>,
    key: &str,
    declared: &[Key],
    read: impl Fn(&Section<'_>) -> Option<T>,
) -> Vec<T> {
    let list = root.get(key).and_then(|item| item.list("tables"));
    let sections = list.into_iter().flatten().filter_map(|item| item.section());
    let element = |section: Section<'_>| {
        section.check(declared);
        read(&section)
    };
    sections.filter_map(element).collect()
}

fn workload(item: &Item<'_>) -> (String, BTreeMap<String, u64>) {
    let Some(section) = item.section() else {
        return Default::default();
    };
    let mut parameters = BTreeMap::new();
    let mut name = String::new();
    for (key, value) in section.entries() {
        if key.get_ref() == "name" {
            value.text().unwrap_or_default().clone_into(&mut name);
        } else if let Some(number) = value.whole(0, i64::MAX as u64) {
            parameters.insert(key.get_ref().to_string(), number);
        }
    }
    if section.get("name").is_none() {
        item.wrong("name is missing; name a workload, as in { name = \"stress-vm\" }");
    }
    (name, parameters)
}

fn knobs(item: &Item<'_>) -> Knobs {
    let entries = item.section().map(|section| section.entries());
    let knob = |(key, value): (&toml::Spanned<toml::de::DeString<'_>>, Item<'_>)| {
        let value = knob_value(key.get_ref(), &value)?;
        Some((key.get_ref().to_string(), value))
    };
    entries
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| knob((key, value)))
        .collect()
}

/// The value of the knob `name` as a whole number. Whether it is within the bounds of the knob is
/// checked later. If the value is negative or has decimals, this function reports a mistake that
/// already states the bounds.
fn knob_value(name: &str, value: &Item<'_>) -> Option<u64> {
    value.whole_or(|text| {
        let refused = catalog::knobs::refused_value(name, text);
        refused.map_or_else(
            || "a knob takes a whole number".to_owned(),
            |why| why.to_string(),
        )
    })
}

fn prices(item: &Item<'_>) -> BTreeMap<String, u32> {
    let entries = item.section().map(|section| section.entries());
    let entries = entries.into_iter().flatten();
    entries
        .filter_map(|(key, value)| Some((key.get_ref().to_string(), value.hundredths()?)))
        .collect()
}

fn design(section: &Section<'_>) -> Option<DesignOf> {
    let design = section.get("design")?.text()?.to_owned();
    let knobs = section
        .get("knobs")
        .map(|item| knobs(&item))
        .unwrap_or_default();
    let label = section
        .get("name")
        .and_then(|item| item.text().map(str::to_owned));
    Some(DesignOf {
        label: label.unwrap_or_else(|| label_of(&design, &knobs)),
        design,
        knobs,
    })
}

fn published(section: &Section<'_>) -> Option<PublishedOf> {
    section.refuse(
        &["thread", "designs", "figure"],
        "this key has no effect with this workload; write metric, design and value",
    );
    for key in ["metric", "design", "value"] {
        section.demand(key, PUBLISHED);
    }
    let text = |key| Some(section.get(key)?.text()?.to_owned());
    Some(PublishedOf {
        metric: text("metric")?,
        design: text("design")?,
        machine: text("machine")?,
        value: section.get("value")?.number()?,
        source: text("source")?,
    })
}

fn moment(section: &Section<'_>) -> Option<Moment> {
    let cpus = |key| {
        let list = section
            .get(key)
            .and_then(|item| item.parsed::<CpuList>("a list such as \"4-7,9\""));
        list.unwrap_or_default()
    };
    Some(Moment {
        at: section.get("at")?.parsed::<Time>("a time such as \"2s\"")?,
        offline: cpus("offline"),
        online: cpus("online"),
        set: section
            .get("set")
            .map(|item| knobs(&item))
            .unwrap_or_default(),
        designs: section
            .get("designs")
            .and_then(|item| item.texts())
            .unwrap_or_default(),
    })
}

fn sweep(item: &Item<'_>) -> Option<Sweep> {
    let section = item.section()?;
    let number = |key| section.get(key).and_then(|item| whole(&item, SWEEP, key));
    let random = section.get("random").and_then(|_| number("random"));
    let seed = number("seed");
    let mut axes = Vec::new();
    for (key, value) in section.entries() {
        let name = key.get_ref().as_ref();
        if SWEEP.iter().any(|of| of.name == name) {
            continue;
        }
        let Some(target) = Target::of_key(name) else {
            section.unknown(key, &AXES);
            continue;
        };
        axes.extend(axis(target, &value));
    }
    if axes.is_empty() {
        item.wrong("no axis; write one, such as \"knob:vm.stat_interval\" = [1, 2, 5]");
    }
    if let (Some(seed), None) = (section.get("seed"), random) {
        seed.wrong("a seed without `random` has no effect; leave it out");
    }
    let random = random.map(|points| Draw {
        points,
        seed: seed.unwrap_or(1),
    });
    Some(Sweep { axes, random })
}

/// The keys that an axis of a sweep can have, which the error about an unknown axis lists.
const AXES: [&str; 8] = [
    "machine",
    "memory",
    "card",
    "workload.workers",
    "knob:vm.stat_interval",
    "price:work.fault",
    "random",
    "seed",
];

fn axis(target: Target, value: &Item<'_>) -> Option<Axis> {
    let one = |item: &Item<'_>| match &target {
        Target::Machine | Target::Memory | Target::Card => {
            Some(AxisValue::Name(item.text()?.to_owned()))
        }
        Target::Workload(_) => Some(AxisValue::Whole(item.whole(0, i64::MAX as u64)?)),
        Target::Knob(name) => Some(AxisValue::Whole(knob_value(name, item)?)),
        Target::Price(_) => Some(AxisValue::Percent(item.hundredths()?)),
    };
    let values: Vec<AxisValue> = value.list("values")?.iter().filter_map(one).collect();
    if values
        .iter()
        .enumerate()
        .any(|(nth, of)| values[..nth].contains(of))
    {
        value.wrong("a value stands here twice");
    }
    Some(Axis { target, values })
}
