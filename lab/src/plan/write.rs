//! Writes a plan as an experiment file.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::data::{AxisValue, Knobs, Moment, Plan, Sweep};
use super::keys::SCHEMA;
use super::text::factor_text;
use crate::run::options::Jitter;

/// The label of a design to which the user gave no label: `DESIGN@KNOB=VALUE,...`.
#[must_use]
pub fn label_of(design: &str, knobs: &Knobs) -> String {
    let settings = knobs.iter().map(|(knob, value)| format!("{knob}={value}"));
    let settings: Vec<String> = settings.collect();
    if settings.is_empty() {
        design.to_owned()
    } else {
        format!("{design}@{}", settings.join(","))
    }
}

/// Puts `text` in double quotes, with escapes where TOML requires them.
#[must_use]
pub fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                quoted.push('\\');
                quoted.push(c);
            }
            c if c.is_control() => quoted.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// The text of an experiment file that holds `plan`. Reading the text gives an equal plan, except
/// for the plan's folder. This is then the folder of the file.
#[must_use]
pub fn to_toml(plan: &Plan) -> String {
    let mut lines = Lines::default();
    lines.put("schema", SCHEMA.to_string());
    lines.put("name", quoted(&plan.name));
    if !plan.question.is_empty() {
        lines.put("question", quoted(&plan.question));
    }
    lines.put("machines", texts(&plan.machines));
    lines.put_some("memory", plan.memory.map(|of| quoted(of.name())));
    lines.put_some("length_ms", plan.length_ms.map(|ms| ms.to_string()));
    lines.put("seeds", plan.seeds.to_string());
    lines.put("jitter", (plan.jitter == Jitter::On).to_string());
    lines.put("card", quoted(plan.card.name()));
    lines.put_some("knobs", table(&plan.knobs, u64::to_string));
    lines.put_some("prices", table(&plan.prices, |of| factor_text(*of)));
    if !plan.metrics.is_empty() {
        lines.put("metrics", texts(&plan.metrics));
    }
    lines.head("[workload]");
    lines.put("name", quoted(&plan.workload));
    for (name, value) in &plan.parameters {
        lines.put(&quoted(name), value.to_string());
    }
    for design in &plan.designs {
        lines.head("[[design]]");
        lines.put("name", quoted(&design.label));
        lines.put("design", quoted(&design.design));
        lines.put_some("knobs", table(&design.knobs, u64::to_string));
    }
    for published in &plan.published {
        lines.head("[[published]]");
        lines.put("metric", quoted(&published.metric));
        lines.put("design", quoted(&published.design));
        lines.put("machine", quoted(&published.machine));
        lines.put("value", published.value.clone());
        lines.put("source", quoted(&published.source));
    }
    if let Some(sweep) = &plan.sweep {
        put_sweep(&mut lines, sweep);
    }
    plan.timeline
        .iter()
        .for_each(|moment| put_moment(&mut lines, moment));
    lines.0
}

fn put_sweep(lines: &mut Lines, sweep: &Sweep) {
    lines.head("[sweep]");
    for axis in &sweep.axes {
        let values = axis.values.iter().map(|value| match value {
            AxisValue::Whole(number) => number.to_string(),
            AxisValue::Percent(percent) => factor_text(*percent),
            AxisValue::Name(name) => quoted(name),
        });
        let values: Vec<String> = values.collect();
        let key = quoted(&axis.target.key());
        lines.put(&key, format!("[{}]", values.join(", ")));
    }
    if let Some(draw) = sweep.random {
        lines.put("random", draw.points.to_string());
        lines.put("seed", draw.seed.to_string());
    }
}

fn put_moment(lines: &mut Lines, moment: &Moment) {
    lines.head("[[timeline]]");
    lines.put("at", quoted(&moment.at.to_string()));
    for (key, cpus) in [("offline", &moment.offline), ("online", &moment.online)] {
        if !cpus.is_empty() {
            lines.put(key, quoted(&cpus.to_string()));
        }
    }
    lines.put_some("set", table(&moment.set, u64::to_string));
    if !moment.designs.is_empty() {
        lines.put("designs", texts(&moment.designs));
    }
}

fn texts(list: &[String]) -> String {
    let list: Vec<String> = list.iter().map(|text| quoted(text)).collect();
    format!("[{}]", list.join(", "))
}

/// The text of `of` as an inline table of TOML, or `None` if `of` is empty.
fn table<V>(of: &BTreeMap<String, V>, text: impl Fn(&V) -> String) -> Option<String> {
    let entries = of.iter();
    let entries: Vec<String> = entries
        .map(|(key, value)| format!("{} = {}", quoted(key), text(value)))
        .collect();
    (!entries.is_empty()).then(|| format!("{{ {} }}", entries.join(", ")))
}

/// The lines of the experiment file that have been written so far.
#[derive(Default)]
struct Lines(String);

impl Lines {
    fn head(&mut self, head: &str) {
        self.0.push_str(&format!("\n{head}\n"));
    }

    fn put(&mut self, key: &str, value: impl AsRef<str>) {
        let written = writeln!(self.0, "{key} = {}", value.as_ref());
        written.expect("writing to a text succeeds");
    }

    fn put_some(&mut self, key: &str, value: Option<String>) {
        if let Some(value) = value {
            self.put(key, value);
        }
    }
}
