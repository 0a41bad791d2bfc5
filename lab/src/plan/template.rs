//! The file that `plimsoll new` writes. It is an experiment that can run as it is, and has comments
//! that show each key that it does not use.

use super::keys::builtin::TOP;
use super::keys::{FILE, Key, Kind};
use super::workloads::{self, Workload};
use super::write::quoted;

/// The workload of the template.
const WORKLOAD: &str = "stress-vm";

/// The keys that the template has, with their values. All other keys are in comments.
const GIVEN: [(&str, &str); 5] = [
    ("schema", "1"),
    ("question", "\"What does ours change on two CPUs?\""),
    ("machines", "[\"laptop-2\"]"),
    ("length_ms", "200"),
    ("seeds", "6"),
];

/// The example values that comments of the template show, by key.
const EXAMPLES: [(&str, &str); 10] = [
    ("memory", "\"aged\""),
    ("jitter", "false"),
    ("card", "\"high\""),
    ("knobs", "{ \"vm.stat_interval\" = 2 }"),
    ("prices", "{ \"work.fault\" = 0.5 }"),
    ("metrics", "[\"pages_allocated_per_s\", \"total_wait_ns\"]"),
    (
        "design",
        "[[design]]\ndesign = \"linux+phased\"\nknobs = { \"batch_scale_max\" = 2 }",
    ),
    (
        "published",
        "[[published]]\nmetric = \"contentions\"\ndesign = \"linux\"\nmachine = \"laptop-2\"\n\
         value = 42\nsource = \"A. Author, 2026-01-31, table 1\"",
    ),
    (
        "sweep",
        "[sweep]\n\"workload.workers\" = [1, 2, 4]\n\"knob:batch_scale_max\" = [0, 5]\n\
         \"price:work.fault\" = [0.5, 1, 2]",
    ),
    ("timeline", "[[timeline]]\nat = \"100ms\"\noffline = \"1\""),
];

/// The text of the template for an experiment called `name`.
///
/// # Panics
/// Never: the template's workload exists.
#[must_use]
pub fn text(name: &str) -> String {
    let workload = workloads::find(WORKLOAD).expect("the template's workload exists");
    let mut plain = String::from(
        "# An experiment of Plimsoll. Run it with `plimsoll run FILE`.\n\
         # Check it with `plimsoll check FILE`. Format: docs/experiments.md\n",
    );
    // In TOML, the keys at the top level must come before the first table.
    let mut tables = String::new();
    let of_plans = FILE.iter().filter(|key| !TOP.contains(&key.name));
    for key in of_plans {
        match key.kind {
            Kind::Workload => tables.push_str(&of_workload(key, workload)),
            Kind::Tables(_) | Kind::Sweep(_) => tables.push_str(&of_table(key)),
            _ => plain.push_str(&of_key(key, name)),
        }
    }
    plain + &tables
}

fn of_key(key: &Key, name: &str) -> String {
    let about = comment(key.about);
    let given = GIVEN.iter().find(|(of, _)| *of == key.name);
    if key.name == "name" {
        return format!("\n{about}name = {}\n", quoted(name));
    }
    match given {
        Some((key, value)) => format!("\n{about}{key} = {value}\n"),
        None => format!("\n{about}# {} = {}\n", key.name, example(key.name)),
    }
}

fn of_workload(key: &Key, workload: &Workload) -> String {
    let mut text = format!(
        "\n{}[workload]\nname = {}\n",
        comment(key.about),
        quoted(workload.name)
    );
    for of in workload.parameters {
        let about = format!("{}; unit: {}", of.about, of.unit);
        let default = of.default.map_or("2".to_owned(), |value| value.to_string());
        text.push_str(&format!("{}# {} = {default}\n", comment(&about), of.name));
    }
    text
}

fn of_table(key: &Key) -> String {
    let mut text = format!("\n{}", comment(key.about));
    if key.name == "design" {
        text.push_str("[[design]]\ndesign = \"linux\"\n\n[[design]]\ndesign = \"ours\"\n\n");
    }
    for line in example(key.name).lines() {
        text.push_str(&format!("# {line}\n"));
    }
    text
}

fn example(name: &str) -> &'static str {
    let found = EXAMPLES.iter().find(|(of, _)| *of == name);
    found.map_or("", |(_, example)| example)
}

/// Formats `about` as a comment, in lines of at most 80 characters.
fn comment(about: &str) -> String {
    let mut text = String::new();
    let mut line = String::from("#");
    for word in about.split(' ') {
        if line.chars().count() + 1 + word.chars().count() > 80 {
            text.push_str(&line);
            text.push('\n');
            line = String::from("#");
        }
        line.push(' ');
        line.push_str(word);
    }
    text + &line + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::prepare::prepare;
    use crate::plan::{FromFile, Plan, sweep};

    #[test]
    fn the_template_is_a_plan_that_can_run_and_has_every_key() {
        let text = text("mine");
        let plan = FromFile::parse("mine.toml", &text).unwrap().plan;
        assert_eq!((plan.name.as_str(), plan.designs.len()), ("mine", 2));
        prepare(&plan).unwrap();
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        for key in FILE.iter().filter(|key| !TOP.contains(&key.name)) {
            assert!(text.contains(key.name), "{}", key.name);
        }
    }

    /// If the comment marks before its examples are removed, the template is still a valid
    /// experiment file.
    #[test]
    fn the_comments_of_the_template_are_right() {
        let is_example = |line: &str| line.contains(" = ") || line.contains('[');
        let uncommented = |line: &str| match line.strip_prefix("# ") {
            Some(rest) if is_example(rest) && !rest.contains('`') => rest.to_owned(),
            _ => line.to_owned(),
        };
        let whole: Vec<String> = text("mine").lines().map(uncommented).collect();
        let plan = FromFile::parse("mine.toml", &whole.join("\n"))
            .unwrap()
            .plan;
        assert_eq!(
            (
                plan.designs.len(),
                plan.timeline.len(),
                plan.published.len()
            ),
            (3, 1, 1)
        );
        let axes = plan.sweep.clone().expect("the template shows a sweep");
        let once = Plan {
            sweep: None,
            ..plan.clone()
        };
        prepare(&once).unwrap();
        // A plan with a sweep must not have published figures. No design is allowed to set a knob
        // that is an axis of the sweep.
        let problems = sweep::points(&plan, &axes).unwrap_err();
        let keys: Vec<&str> = problems.iter().map(|of| of.key.as_str()).collect();
        assert_eq!(keys, ["published", "sweep.\"knob:batch_scale_max\""]);
    }
}
