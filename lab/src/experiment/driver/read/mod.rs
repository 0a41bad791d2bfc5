//! Reads the file of an experiment whose workload is a [`Runs`].
//!
//! The reader looks up each name at the place where the file has it. So the error for a mistake
//! shows the line and the key. The submodule `answer` reads the answer and the table of cost cards
//! (low, middle and high prices), and `published` reads the published figures.

mod answer;
mod published;

use std::path::Path;

use super::cards::CELLS;
use super::code::{PartInfo, Runs, setting};
use super::data::{Data, OfMachine, Pair, Tried};
use super::numbers::{Number, Numbers};
use super::text::Metrics;
use crate::catalog::designs;
use crate::catalog::machines::machine_at;
use crate::error::Error;
use crate::experiment::Experiment;
use crate::plan::keys::builtin::{self, COMPARE};
use crate::plan::keys::{FILE, SCHEMA};
use crate::plan::section::{Found, Item, Section};
use crate::plan::source::{self, error_of};
use crate::run::aging::Memory;

/// Reads the experiment in `text`, the content of `file`. Machines that `text` names can be files
/// in `folder`. Returns `None` if the experiment's workload is not one of `subjects`.
///
/// # Errors
/// [`Error::Invalid`] if the text has mistakes. The error lists all of them.
pub(in crate::experiment) fn experiment(
    (file, text): (&str, &str),
    folder: &Path,
    subjects: &[&'static dyn Runs],
) -> Result<Option<Box<dyn Experiment + Send>>, Error> {
    let table = source::parse(file, text)?;
    let name = table.get_ref().get("workload").and_then(|value| {
        let name = value.get_ref().as_table()?.get("name")?;
        name.get_ref().as_str()
    });
    let subject = subjects.iter().find(|of| Some(of.workload()) == name);
    let Some(&subject) = subject else {
        return Ok(None);
    };
    let found = Found::default();
    let data = data(&Section::root(&found, &table), folder, subject);
    let (mistakes, _) = found.finish();
    match data {
        Some(data) if mistakes.is_empty() => Ok(Some(subject.experiment(data))),
        _ => Err(error_of(file, text, mistakes)),
    }
}

/// The names that a file defines and that other parts of the file can use.
struct Names {
    machines: Vec<String>,
    designs: Vec<String>,
    metrics: Metrics,
    parts: Vec<PartInfo>,
    cells: Vec<&'static str>,
    /// The names of the facts (texts that the answer can quote) that the parts of the report give.
    facts: Vec<&'static str>,
}

impl Names {
    /// Returns the text of `item` if it is one of `names`. Otherwise reports a mistake in the
    /// experiment file, and returns `None`.
    fn one<'a>(item: &Item<'a>, kind: &'static str, names: &[impl AsRef<str>]) -> Option<&'a str> {
        let name = item.text()?;
        let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
        if names.contains(&name) {
            return Some(name);
        }
        item.wrong(Error::unknown(kind, name, &names).to_string());
        None
    }

    fn design(&self, item: &Item<'_>) -> Option<String> {
        Self::one(item, "design", &self.designs).map(str::to_owned)
    }

    fn metric(&self, item: &Item<'_>) -> Option<String> {
        let name = item.text()?;
        let known = self.metrics.check(name);
        let known = known.map_err(|why| item.wrong(why.to_string()));
        known.ok().map(|()| name.to_owned())
    }

    fn machine(&self, item: &Item<'_>) -> Option<String> {
        Self::one(item, "machine of this experiment", &self.machines).map(str::to_owned)
    }
}

/// Reads each element of the list at `key` of `section` with `read`. Returns `None` if the file
/// does not have the list.
fn each<T>(
    section: &Section<'_>,
    key: &str,
    of: &str,
    read: impl Fn(&Item<'_>) -> Option<T>,
) -> Option<Vec<T>> {
    let items = section.get(key)?.list(of)?;
    Some(items.iter().filter_map(read).collect())
}

fn text(section: &Section<'_>, key: &str) -> Option<String> {
    Some(section.get(key)?.text()?.to_owned())
}

fn data(root: &Section<'_>, folder: &Path, subject: &'static dyn Runs) -> Option<Data> {
    root.check(FILE);
    root.refuse(
        &builtin::NOT_TAKEN,
        "this key has no effect with this workload; leave it out",
    );
    for key in ["compare", "answer"] {
        root.demand(key, FILE);
    }
    if let Some(schema) = root.get("schema") {
        schema.whole(SCHEMA, SCHEMA);
    }
    let machines = root.get("machines")?.texts()?;
    let numbers = workload(root, &machines, subject)?;
    let memory = memory(root, subject);
    let metrics = metrics(root, (folder, &machines), (&numbers, memory), subject)?;
    let designs = designs(root, subject);
    let mut names = Names {
        machines,
        designs: designs.iter().map(|of| of.name.clone()).collect(),
        metrics: Metrics {
            all: metrics,
            numbers: numbers
                .iter()
                .flat_map(|of| [of.full.clone(), of.quick.clone()])
                .collect(),
        },
        parts: subject.parts(),
        cells: CELLS.into_iter().chain(subject.cells()).collect(),
        facts: Vec::new(),
    };
    let tables = tables(root, "tables", &names).unwrap_or_default();
    let given = names.parts.iter();
    let given = given.filter(|part| tables.iter().any(|table| table == part.name));
    names.facts = given.flat_map(|part| part.facts).copied().collect();
    let compare = root.get("compare").and_then(|item| item.section());
    let cards = root
        .get("cards")
        .and_then(|item| answer::cards(&item, &names));
    if cards.is_none() && tables.iter().any(|name| name == super::CARDS) {
        root.demand("cards", FILE);
    }
    let (answer, finding) = answer::answer(&root.get("answer")?, &names)?;
    Some(Data {
        name: text(root, "name")?,
        question: text(root, "question").or_else(|| {
            root.demand("question", FILE);
            None
        })?,
        folder: folder.to_owned(),
        numbers,
        memory,
        pairs: compare.as_ref().map(|of| pairs(of, &names))?,
        compared: compare.and_then(|of| each(&of, "metrics", "texts", |name| names.metric(name))),
        shown: each(root, "metrics", "texts", |item| names.metric(item)),
        answer,
        finding,
        cards,
        tables_elsewhere: self::tables(root, "tables_elsewhere", &names)
            .unwrap_or_else(|| tables.clone()),
        tables,
        published: published::published(root, &names),
        machines: names.machines,
        designs,
    })
}

/// Reads the workload's numbers for each of `machines`.
fn workload(root: &Section<'_>, machines: &[String], subject: &dyn Runs) -> Option<Vec<OfMachine>> {
    let section = root.get("workload")?.section()?;
    let declared: Vec<&str> = subject.numbers().iter().map(|of| of.name).collect();
    let with_name: Vec<&str> = declared.iter().copied().chain(["name"]).collect();
    section.check_names(&with_name);
    for of in subject.numbers() {
        section.demand_about(of.name, of.about);
    }
    let usual = numbers(&section, subject.numbers());
    let quick = root.get("quick").and_then(|item| item.section());
    let on = root.get("on").and_then(|item| item.section());
    let names: Vec<&str> = machines.iter().map(String::as_str).collect();
    if let Some(on) = &on {
        on.check_names(&names);
    }
    let of_machine = |machine: &String| {
        let mut full = usual.clone();
        let own = on.as_ref().and_then(|on| on.get(machine)?.section());
        if let Some(own) = own {
            own.check_names(&declared);
            fill(&mut full, &own, subject.numbers());
        }
        let mut in_quick = full.clone();
        if let Some(quick) = &quick {
            fill(&mut in_quick, quick, subject.numbers());
        }
        OfMachine {
            full,
            quick: in_quick,
        }
    };
    let all = machines.iter().map(of_machine).collect();
    if let Some(quick) = &quick {
        quick.check_names(&declared);
    }
    let is_whole = subject.numbers().iter().all(|of| usual.has(of.name));
    is_whole.then_some(all)
}

fn numbers(section: &Section<'_>, declared: &'static [Number]) -> Numbers {
    let mut numbers = Numbers::default();
    fill(&mut numbers, section, declared);
    numbers
}

/// Sets each number of `declared` that `section` has.
fn fill(numbers: &mut Numbers, section: &Section<'_>, declared: &'static [Number]) {
    for of in declared {
        let whole = |item: &Item<'_>| item.whole(of.min, of.max);
        let values = section.get(of.name).and_then(|item| {
            if !of.is_list {
                return Some(vec![whole(&item)?]);
            }
            let values: Option<Vec<u64>> = item.list("whole numbers")?.iter().map(whole).collect();
            values
        });
        if let Some(values) = values {
            numbers.set(of.name, values);
        }
    }
}

fn memory(root: &Section<'_>, subject: &dyn Runs) -> Option<Memory> {
    if !subject.takes_memory() {
        let why = "this workload always begins with its own state of memory; leave the key out";
        root.refuse(&["memory"], why);
        return None;
    }
    root.demand("memory", FILE);
    let item = root.get("memory")?;
    let memory = Memory::named(item.text()?);
    memory.map_err(|why| item.wrong(why.to_string())).ok()
}

/// The names of the metrics of a full or a quick run on any machine.
fn metrics(
    root: &Section<'_>,
    (folder, machines): (&Path, &[String]),
    (numbers, memory): (&[OfMachine], Option<Memory>),
    subject: &dyn Runs,
) -> Option<Vec<String>> {
    let mut names: Vec<String> = Vec::new();
    let items = root.get("machines")?.list("texts")?;
    let mut is_whole = true;
    for ((machine, item), numbers) in machines.iter().zip(items).zip(numbers) {
        let loaded = machine_at(folder, machine);
        for numbers in [&numbers.full, &numbers.quick] {
            match subject.metrics(&setting(&loaded, numbers, memory)) {
                Ok(metrics) => {
                    let new = metrics.into_iter().map(|metric| metric.name.into_owned());
                    names.extend(new.filter(|name| !names.contains(name)).collect::<Vec<_>>());
                }
                Err(why) => {
                    item.wrong(why.to_string());
                    is_whole = false;
                }
            }
        }
    }
    is_whole.then_some(names)
}

fn designs(root: &Section<'_>, subject: &dyn Runs) -> Vec<Tried> {
    let declared = subject.of_designs();
    let keys: Vec<&str> = declared.iter().map(|of| of.name).collect();
    let keys: Vec<&str> = keys.into_iter().chain(["name", "design"]).collect();
    let mut tried: Vec<Tried> = Vec::new();
    let items = root.get("design").and_then(|item| item.list("tables"));
    for item in items.into_iter().flatten() {
        let Some(section) = item.section() else {
            continue;
        };
        section.check_names(&keys);
        section.demand("design", crate::plan::keys::DESIGN);
        for of in declared {
            section.demand_about(of.name, of.about);
        }
        let Some(design) = section.get("design") else {
            continue;
        };
        let Some(name) = design.text() else { continue };
        let label = text(&section, "name").unwrap_or_else(|| name.to_owned());
        if tried.iter().any(|other| other.name == label) {
            item.wrong(format!(
                "two designs are called `{label}`; give one another name"
            ));
        }
        match designs::find(name) {
            Ok(named) => tried.push(Tried {
                name: label,
                design: named.design,
                numbers: numbers(&section, declared),
            }),
            Err(why) => design.wrong(why.to_string()),
        }
    }
    tried
}

/// Reads the pairs of designs in the table `[compare]`.
fn pairs(section: &Section<'_>, names: &Names) -> Vec<Pair> {
    section.check(COMPARE);
    let pairs = section.get("pairs").and_then(|item| item.pairs());
    let pair = |[a, b]: &[Item<'_>; 2]| {
        let a = names.design(a)?;
        let b = if b.text()? == "*" {
            None
        } else {
            Some(names.design(b)?)
        };
        Some(Pair { a, b })
    };
    pairs
        .into_iter()
        .flatten()
        .filter_map(|item| pair(&item))
        .collect()
}

/// Reads the names of tables at `key`. Reports a mistake if a table names a design that the file
/// does not have.
fn tables(root: &Section<'_>, key: &str, names: &Names) -> Option<Vec<String>> {
    let known = names.parts.iter().map(|part| part.name);
    let known: Vec<&str> = known.chain([super::CARDS]).collect();
    each(root, key, "texts", |item| {
        let name = Names::one(item, "table of this workload", &known)?;
        let part = names.parts.iter().find(|part| part.name == name);
        let needed = part.map_or(&[][..], |part| part.designs).iter();
        let missing = needed
            .copied()
            .find(|design| !names.designs.iter().any(|of| of == design));
        if let Some(design) = missing {
            item.wrong(format!(
                "the table `{name}` needs a design called `{design}`: add one, or leave the table \
                 out"
            ));
        }
        Some(name.to_owned())
    })
}
