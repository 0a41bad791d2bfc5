//! Tests experiment files. A written plan is read back unchanged, and no text makes the reader
//! panic. A file gives the same results as a command line with the same choices. The files in
//! `experiments/` run.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use plimsoll_lab::Card;
use plimsoll_lab::plan::data::{
    Axis, AxisValue, DesignOf, Draw, Knobs, Moment, Plan, PublishedOf, Sweep, Target,
};
use plimsoll_lab::plan::drive::{self, How};
use plimsoll_lab::plan::keys::{DESIGN, FILE, MOMENT, PUBLISHED, SWEEP};
use plimsoll_lab::plan::text::{CpuList, TIME_MAX, Time};
use plimsoll_lab::plan::workloads::WORKLOADS;
use plimsoll_lab::plan::write::to_toml;
use plimsoll_lab::plan::{FromFile, command, outline, prepare, sweep, sweep_report};
use plimsoll_lab::run::aging::Memory;
use plimsoll_lab::run::jobs::Jobs;
use plimsoll_lab::run::options::Jitter;
use plimsoll_lab::run::progress::Progress;
use plimsoll_mm::units::Nanos;
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

/// The largest whole number in a TOML file.
const WHOLE_MAX: u64 = i64::MAX as u64;

fn how() -> How {
    How {
        watch: None,
        jobs: Jobs::new(NonZeroUsize::new(2).expect("not zero")),
        record: None,
        trace: None,
    }
}

/// Generates texts that are not blank, and that can contain every character that TOML has to escape
/// and an experiment file can have.
fn text() -> impl Strategy<Value = String> {
    let texts = prop_oneof!["[a-z]{1,8}", any::<String>(), "[\\\\\"'\n\t\r #=\\[]{1,6}"];
    let is_allowed = |c: &char| !c.is_control() || "\t\r\n".contains(*c);
    let texts = texts.prop_map(move |text: String| text.chars().filter(is_allowed).collect());
    texts.prop_filter("not blank", |text: &String| !text.trim().is_empty())
}

fn texts() -> impl Strategy<Value = Vec<String>> {
    vec(text(), 1..4)
}

fn knobs() -> impl Strategy<Value = Knobs> {
    btree_map(any::<String>(), 0..=WHOLE_MAX, 0..4)
}

fn cpus() -> impl Strategy<Value = CpuList> {
    vec(0_u32..4096, 0..6).prop_map(CpuList::new)
}

fn designs() -> impl Strategy<Value = Vec<DesignOf>> {
    let design = (text(), text(), knobs());
    let design = design.prop_map(|(label, design, knobs)| DesignOf {
        label,
        design,
        knobs,
    });
    vec(design, 1..4)
}

fn published() -> impl Strategy<Value = Vec<PublishedOf>> {
    let value = prop_oneof![
        (0..=WHOLE_MAX).prop_map(|whole| whole.to_string()),
        (0_u32..10_000, 0_u32..100).prop_map(|(whole, part)| format!("{whole}.{part:02}")),
    ];
    let of = (text(), text(), text(), value, text());
    let of = of.prop_map(|(metric, design, machine, value, source)| PublishedOf {
        metric,
        design,
        machine,
        value,
        source,
    });
    vec(of, 0..3)
}

fn axis() -> impl Strategy<Value = Axis> {
    let whole = || vec((0..=WHOLE_MAX).prop_map(AxisValue::Whole), 1..5);
    let named = || vec(text().prop_map(AxisValue::Name), 1..5);
    let percent = vec(any::<u32>().prop_map(AxisValue::Percent), 1..5);
    let axis = prop_oneof![
        (Just(Target::Machine), named()),
        (Just(Target::Memory), named()),
        (Just(Target::Card), named()),
        (any::<String>().prop_map(Target::Workload), whole()),
        (any::<String>().prop_map(Target::Knob), whole()),
        (any::<String>().prop_map(Target::Price), percent),
    ];
    axis.prop_map(|(target, values)| Axis {
        target,
        values: distinct(values, |value| value.clone()),
    })
}

fn a_sweep() -> impl Strategy<Value = Sweep> {
    let draw = (1_u64..10_000, 0_u64..1 << 62);
    let draw = draw.prop_map(|(points, seed)| Draw { points, seed });
    (vec(axis(), 1..4), option::of(draw)).prop_map(|(axes, random)| Sweep {
        axes: distinct(axes, |axis| axis.target.clone()),
        random,
    })
}

/// Returns the elements of `of`. If several elements have the same key, returns only the first of
/// them.
fn distinct<T, K: PartialEq>(of: Vec<T>, key: impl Fn(&T) -> K) -> Vec<T> {
    let mut kept: Vec<T> = Vec::new();
    for one in of {
        if kept.iter().all(|other| key(other) != key(&one)) {
            kept.push(one);
        }
    }
    kept
}

fn timeline() -> impl Strategy<Value = Vec<Moment>> {
    let moment = (0..=TIME_MAX.0, cpus(), cpus(), knobs(), option::of(texts()));
    let moment = moment.prop_map(|(at, offline, online, set, designs)| Moment {
        at: Time(Nanos(at)),
        offline,
        online,
        set,
        designs: designs.unwrap_or_default(),
    });
    vec(moment, 0..4)
}

/// Generates plans of the right form. The names in these plans do not have to exist.
fn plans() -> impl Strategy<Value = Plan> {
    let parameters = btree_map(any::<String>(), 0..=WHOLE_MAX, 0..4).prop_map(|mut of| {
        of.remove("name");
        of
    });
    let head = (text(), option::of(text()), texts(), text(), parameters);
    let memory = option::of(prop::sample::select(Memory::ALL.to_vec()));
    let card = prop::sample::select(vec![Card::Low, Card::Mid, Card::High]);
    let run = (
        memory,
        option::of(1_u64..3_600_000),
        1_u64..10_000,
        any::<bool>(),
        card,
    );
    let prices = btree_map(any::<String>(), any::<u32>(), 0..4);
    let rest = (knobs(), prices, designs(), option::of(texts()), published());
    let more = (option::of(a_sweep()), timeline());
    (head, run, rest, more).prop_map(|(head, run, rest, more)| Plan {
        name: head.0,
        question: head.1.unwrap_or_default(),
        machines: head.2,
        folder: PathBuf::new(),
        workload: head.3,
        parameters: head.4,
        memory: run.0,
        length_ms: run.1,
        seeds: run.2,
        jitter: if run.3 { Jitter::On } else { Jitter::Off },
        card: run.4,
        knobs: rest.0,
        prices: rest.1,
        designs: rest.2,
        metrics: rest.3.unwrap_or_default(),
        published: rest.4,
        sweep: more.0,
        timeline: more.1,
    })
}

/// Experiment files without mistakes.
const FILES: [&str; 3] = [
    include_str!("../../experiments/first.toml"),
    include_str!("../../experiments/missing-cpus.toml"),
    include_str!("../../experiments/own-variant.toml"),
];

/// Generates experiment files in which some characters are removed, doubled or replaced.
fn damaged() -> impl Strategy<Value = String> {
    let edit = (any::<prop::sample::Index>(), 0_u8..3, any::<char>());
    (prop::sample::select(FILES.to_vec()), vec(edit, 1..6)).prop_map(|(file, edits)| {
        let mut text: Vec<char> = file.chars().collect();
        for (at, kind, c) in edits {
            let at = at.index(text.len());
            match kind {
                0 => drop(text.remove(at)),
                1 => text.insert(at, text[at]),
                _ => text[at] = c,
            }
        }
        text.into_iter().collect()
    })
}

/// Reads `text`. If `text` is a plan, also checks the plan. Asserts that each error names the file.
fn read(text: &str) {
    let named = |error: &plimsoll_lab::Error| {
        let shown = error.to_string();
        assert!(
            error.is_bad_input() && shown.starts_with("f.toml:"),
            "{shown}"
        );
    };
    match FromFile::parse("f.toml", text) {
        Err(error) => named(&error),
        Ok(of) => {
            let problems = prepare::prepare(&of.plan).map(drop);
            problems.unwrap_or_else(|problems| named(&of.locate(&problems)));
        }
    }
}

proptest! {
    #[test]
    fn a_plan_that_is_written_is_read_again(plan in plans()) {
        let text = to_toml(&plan);
        let read = FromFile::parse("f.toml", &text);
        let read = read.map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
        prop_assert_eq!(read.plan, plan);
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in any::<String>()) {
        read(&text);
    }

    #[test]
    fn no_damage_to_a_file_makes_the_reader_panic(text in damaged()) {
        read(&text);
    }

    #[test]
    fn no_plan_makes_the_check_panic(plan in plans()) {
        read(&to_toml(&plan));
    }
}

#[test]
fn a_file_gives_the_runs_of_the_command_line_of_the_same_choice() {
    let text = r#"
        schema = 1
        name = "mine"
        machines = ["laptop-2"]
        length_ms = 60
        seeds = 2
        knobs = { "vm.stat_interval" = 3 }
        workload = { name = "stress-vm", workers = 3 }
        [[design]]
        design = "linux"
        [[design]]
        design = "linux"
        knobs = { batch_scale_max = 0 }
    "#;
    let of_file = FromFile::parse("mine.toml", text).unwrap().plan;
    let designs = ["linux", "linux@batch_scale_max=0"];
    let of_line =
        command::plan("stress-vm", "laptop-2", &designs, &["vm.stat_interval=3"]).unwrap();
    let of_line = Plan {
        length_ms: Some(60),
        seeds: 2,
        parameters: BTreeMap::from([("workers".to_owned(), 3)]),
        ..of_line
    };
    let hash = |plan: &Plan| {
        let prepared = prepare::prepare(plan).unwrap();
        let run = drive::run(
            &prepared,
            &prepared.machines[0],
            &how(),
            &Progress::hidden(),
        );
        let (report, _) = run.unwrap();
        (report.hash, report.rows.len())
    };
    assert_eq!(hash(&of_file), hash(&of_line));
    let other = Plan {
        seeds: 3,
        ..of_file.clone()
    };
    assert_ne!(hash(&other), hash(&of_file));
}

/// A profile that lies beside the file is found from any working directory.
#[test]
fn a_profile_is_relative_to_the_file() {
    let folder = std::env::temp_dir().join(format!("plimsoll-files-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let profile = include_str!("../../machines/sim/profiles/laptop-2.toml");
    fs::write(
        folder.join("mine.toml"),
        profile.replace("laptop-2", "my-laptop"),
    )
    .unwrap();
    let text = FILES[0].replace("\"laptop-2\"", "\"mine.toml\"");
    fs::write(folder.join("first.toml"), text).unwrap();
    let plan = FromFile::load(&folder.join("first.toml")).unwrap().plan;
    let found = prepare::prepare(&plan).map(|of| of.machines[0].profile.name.clone());
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(found.unwrap(), "my-laptop");
}

fn examples() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../experiments");
    let entries = fs::read_dir(folder).expect("the folder is there");
    let path = |entry: io::Result<fs::DirEntry>| entry.expect("the folder can be read").path();
    let mut paths: Vec<PathBuf> = entries.map(path).collect();
    paths.sort();
    paths
}

/// Each example runs with one seed. An example without a timeline of planned changes runs on a
/// small machine, with the default number of workers and the default memory per worker. The designs
/// must also differ on this machine.
#[test]
fn the_examples_run() {
    let examples = examples();
    assert!(examples.len() >= 3);
    for path in examples {
        let file = FromFile::load(&path).unwrap();
        outline::outline(&file.plan)
            .unwrap_or_else(|problems| panic!("{}", file.locate(&problems)));
        let mut plan = Plan {
            seeds: 1,
            ..file.plan
        };
        if plan.timeline.is_empty() {
            plan.machines = vec!["phone-8".to_owned()];
            plan.parameters.remove("workers");
            plan.parameters.remove("mib_per_worker");
        }
        let progress = Progress::hidden();
        let report = match plan.sweep.clone() {
            Some(axes) => {
                let points = sweep::points(&plan, &axes).unwrap();
                let last = &points[points.len() - 1..];
                sweep_report::run(&plan, &axes, last, &how(), &progress).unwrap()
            }
            None => {
                let prepared = prepare::prepare(&plan).unwrap();
                drive::run(&prepared, &prepared.machines[0], &how(), &progress)
                    .unwrap()
                    .0
            }
        };
        assert!(
            report
                .finding
                .starts_with(&format!("The question: {}", plan.question))
        );
        assert!(!report.tables.is_empty(), "{}", path.display());
    }
}

const PAGE: &str = include_str!("../../docs/experiments.md");

#[test]
fn the_page_has_every_parameter_as_it_is_declared() {
    for workload in &WORKLOADS {
        for of in workload.parameters {
            let row = format!(
                "| `{}` | `{}` | {} | {} | {} to {} | {} |",
                workload.name,
                of.name,
                of.unit,
                of.default_text(),
                of.min,
                of.max,
                of.about
            );
            assert!(
                PAGE.contains(&row),
                "docs/experiments.md lacks this row:\n{row}"
            );
        }
    }
}

#[test]
fn the_page_has_every_key_and_shows_the_file_that_it_names() {
    let keys = [FILE, DESIGN, PUBLISHED, SWEEP, MOMENT].concat();
    for key in keys {
        assert!(
            PAGE.contains(key.name),
            "docs/experiments.md lacks {}",
            key.name
        );
    }
    let lines = FILES[0].lines().skip_while(|line| line.starts_with('#'));
    let shown: String = lines.map(|line| format!("{line}\n")).collect();
    assert!(
        PAGE.contains(&shown),
        "docs/experiments.md shows another first.toml"
    );
}
