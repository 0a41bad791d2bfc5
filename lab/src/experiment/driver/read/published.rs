//! Reads the published figures.

use super::{Names, each, text};
use crate::experiment::driver::figures::{Figure, Published};
use crate::plan::keys::builtin::FIGURE;
use crate::plan::keys::{FILE, PUBLISHED};
use crate::plan::section::{Item, Section};
use crate::report::misses::{Basis, Thread, Values};

/// Reads the tables `[[published]]`.
pub(super) fn published(root: &Section<'_>, names: &Names) -> Vec<Published> {
    let causes = root.get("causes").and_then(|item| item.section());
    let read = |item: &Item<'_>| source(&item.section()?, causes.as_ref(), names);
    each(root, "published", "tables", read).unwrap_or_default()
}

fn source(section: &Section<'_>, causes: Option<&Section<'_>>, names: &Names) -> Option<Published> {
    section.check(PUBLISHED);
    let thread = section.get("thread").and_then(|item| {
        let name = item.text()?;
        let thread = Thread::named(name);
        if thread.is_none() {
            item.wrong(format!("no thread is called `{name}`"));
        }
        thread
    });
    let designs = each(section, "designs", "texts", |item| names.design(item));
    let read = |item: &Item<'_>| figure(&item.section()?, designs.as_deref(), causes, names);
    let figures = match section.get("figure") {
        Some(_) => {
            let why = "`figure` has this in each of its tables; leave it out";
            section.refuse(&["metric", "design", "value"], why);
            each(section, "figure", "tables", read)?
        }
        None => vec![single(section, names)?],
    };
    Some(Published {
        machine: names.machine(&section.get("machine")?)?,
        thread: thread.unwrap_or(Thread::Other),
        source: text(section, "source")?,
        figures,
    })
}

/// Reads the figure of a table `[[published]]` that has a single figure.
fn single(section: &Section<'_>, names: &Names) -> Option<Figure> {
    for key in ["metric", "design", "value"] {
        section.demand(key, PUBLISHED);
    }
    let metric = names.metric(&section.get("metric")?)?;
    Some(Figure {
        what: metric.replace('_', " "),
        metric,
        designs: vec![names.design(&section.get("design")?)?],
        values: Values::Levels(vec![section.get("value")?.real()?]),
        basis: Basis::Independent,
        why: String::new(),
    })
}

fn figure(
    section: &Section<'_>,
    usual: Option<&[String]>,
    causes: Option<&Section<'_>>,
    names: &Names,
) -> Option<Figure> {
    section.check(FIGURE);
    let own = each(section, "designs", "texts", |item| names.design(item));
    if own.is_none() && usual.is_none() {
        section.demand("designs", FIGURE);
    }
    let designs = own.or_else(|| usual.map(<[String]>::to_vec))?;
    Some(Figure {
        what: text(section, "what")?,
        metric: names.metric(&section.get("metric")?)?,
        values: values(section, designs.len())?,
        designs,
        basis: section
            .get("basis")
            .map_or(Some(Basis::Independent), |item| {
                let basis = Basis::named(item.text()?);
                if basis.is_none() {
                    item.wrong("write independent, fitted or construction");
                }
                basis
            })?,
        why: why(section, causes)?,
    })
}

fn values(section: &Section<'_>, designs: usize) -> Option<Values> {
    if let Some(item) = section.get("change_percent") {
        section.refuse(&["values"], "the figure has change_percent; leave one out");
        if designs != 2 {
            item.wrong(format!("a change is between two designs, not {designs}"));
        }
        return Some(Values::ChangePercent(item.real()?));
    }
    section.demand("values", FIGURE);
    let item = section.get("values")?;
    let values: Option<Vec<f64>> = item.one_or_list()?.iter().map(Item::real).collect();
    let values = values?;
    if values.len() != designs {
        item.wrong(format!("{} values for {designs} designs", values.len()));
    }
    Some(Values::Levels(values))
}

/// The text that explains why the published figure differs from ours: either the figure's own text,
/// or an entry of `[causes]`.
fn why(section: &Section<'_>, causes: Option<&Section<'_>>) -> Option<String> {
    let Some(item) = section.get("cause") else {
        return Some(text(section, "why").unwrap_or_default());
    };
    section.refuse(&["why"], "the figure has a cause; leave one out");
    let known: Vec<String> = causes.map_or(Vec::new(), |of| {
        let entries = of.entries().into_iter();
        entries.map(|(key, _)| key.get_ref().to_string()).collect()
    });
    let name = Names::one(&item, "cause", &known);
    if known.is_empty() {
        let about = FILE.iter().find(|key| key.name == "causes");
        item.wrong(about.map_or("", |key| key.about));
    }
    text(causes?, name?)
}
