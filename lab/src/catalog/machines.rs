//! Describes simulated machines in lists and tables. The module `profiles` loads them.

use std::path::Path;

use plimsoll_mm::site::Work;
use plimsoll_sim::profile::{
    Card, Cluster, Cost, Profile, ProfileText, Provenance, Range, Sourced,
};

pub use super::profiles::{copy_of, load, load_in, machine_at};
use super::profiles::{is_file, unknown};
use crate::error::Error;
use crate::measure::metric::Unit;
use crate::report::Table;
use crate::report::value::human;

/// Returns a table of all built-in machines and of their variants, such as the variant with KASAN.
/// Each row has a description in one line.
#[must_use]
pub fn list() -> Table {
    let machines = Profile::list().into_iter();
    Table {
        title: String::new(),
        note: "`plimsoll machines NAME` shows every cost with its source; NAME may be a file. \
               `--copy FILE` copies the profile, for a machine of your own."
            .to_owned(),
        columns: ["machine", "about"].map(str::to_owned).to_vec(),
        rows: machines
            .map(|machine| vec![machine.name, machine.about])
            .collect(),
    }
}

/// Returns tables that describe a built-in machine or a profile file: its topology, and each price
/// with its range and source.
///
/// # Errors
/// The errors of [`load`].
pub fn describe(machine: &str) -> Result<Vec<Table>, Error> {
    let text = if is_file(machine) {
        ProfileText::from_path(Path::new(machine))?
    } else {
        Profile::describe(machine).map_err(|error| unknown(error, machine, Path::new("")))?
    };
    let mut tables = vec![shape(&text)];
    if text.clusters.iter().any(|cluster| cluster.speed.is_some()) {
        tables.push(speeds(&text));
    }
    if text.clock.is_some() || text.bandwidth.is_some() {
        tables.push(effects_of_load(&text));
    }
    tables.push(costs(&text));
    if !text.jitter.is_empty() {
        tables.push(jitter(&text));
    }
    Ok(tables)
}

fn shape(text: &ProfileText) -> Table {
    let memory: u64 = text.node_bytes.iter().sum();
    let rows = [
        ("about", text.about.clone()),
        ("architecture", text.arch.clone()),
        ("CPUs", text.topology.cpus().to_string()),
        ("nodes", text.node_bytes.len().to_string()),
        ("memory", human(memory as f64, Unit::Bytes)),
        ("HZ", text.hz.get().to_string()),
    ];
    let variants = text.variants.iter();
    let variants = variants.map(|variant| {
        (
            format!("{}+{}", text.name, variant.name),
            variant.about.clone(),
        )
    });
    let rows = rows
        .into_iter()
        .map(|(what, is)| (what.to_owned(), is))
        .chain(variants);
    Table {
        title: text.name.clone(),
        note: String::new(),
        columns: ["what", "is"].map(str::to_owned).to_vec(),
        rows: rows.map(|(what, is)| vec![what, is]).collect(),
    }
}

fn speeds(text: &ProfileText) -> Table {
    let row = |cluster: &Cluster| {
        let mut row = vec![cluster.name.clone(), cluster.cpus.len().to_string()];
        if let Some(speed) = &cluster.speed {
            row.extend(Card::ALL.map(|card| hundredths(speed.percent.at(card))));
            row.push(speed.source.clone());
        } else {
            row.extend(Card::ALL.map(|_| hundredths(100)));
            row.push("the costs are for it".to_owned());
        }
        row
    };
    Table {
        title: "Speeds of cores, at each card".to_owned(),
        note: "Work of a core that involves no other core costs the price divided by its speed."
            .to_owned(),
        columns: ["cores", "CPUs", "low", "mid", "high", "source"]
            .map(str::to_owned)
            .to_vec(),
        rows: text.clusters.iter().map(row).collect(),
    }
}

/// Makes the table of the effects of load: the speeds to which busy CPUs slow each other down, and
/// the memory bandwidth that CPUs share.
fn effects_of_load(text: &ProfileText) -> Table {
    type Row<'a> = (&'a str, &'a Sourced, fn(u32) -> String);
    let row = |(what, entry, show): Row<'_>| {
        let values = Card::ALL.map(|card| show(entry.range.at(card)));
        let mut row = vec![what.to_owned()];
        row.extend(values);
        row.push(entry.source.clone());
        row
    };
    let mut rows: Vec<Row<'_>> = Vec::new();
    if let Some(clock) = &text.clock {
        rows.push(("clock.all_core", &clock.all_core, hundredths));
        if let Some(sibling) = &clock.sibling {
            rows.push(("clock.sibling", sibling, hundredths));
        }
    }
    if let Some(bandwidth) = &text.bandwidth {
        let whole: fn(u32) -> String = |value| value.to_string();
        rows.push(("bandwidth.node, GB/s", &bandwidth.node, whole));
        for (work, bytes) in &bandwidth.bytes {
            let what = match work {
                Work::Fault => "bandwidth.fault, bytes",
                Work::SwapIn => "bandwidth.swap_in, bytes",
                Work::SwapOut => "bandwidth.swap_out, bytes",
                _ => "bandwidth.lru_move, bytes",
            };
            rows.push((what, bytes, whole));
        }
    }
    Table {
        title: "Effects of load, at each card".to_owned(),
        note: "Speeds of busy CPUs against that of one alone, memory bandwidth, and bytes moved."
            .to_owned(),
        columns: ["what", "low", "mid", "high", "source"]
            .map(str::to_owned)
            .to_vec(),
        rows: rows.into_iter().map(row).collect(),
    }
}

fn hundredths(percent: u32) -> String {
    format!("{}.{:02}", percent / 100, percent % 100)
}

fn costs(text: &ProfileText) -> Table {
    let row = |name: String, range: Range, source: String| {
        let ends = Card::ALL.map(|card| range.at(card).to_string());
        let mut row = vec![name];
        row.extend(ends);
        row.push(source);
        row
    };
    let rows = |cost: &Cost| {
        let first = row(cost.key.to_string(), cost.range, cost.source.clone());
        let then = cost.then.map(|then| {
            let name = format!("  if a hold moves {} pages", then.pages);
            row(name, then.range, format!("above: for {} pages", then.at))
        });
        [Some(first), then].into_iter().flatten()
    };
    let fitted = text.costs.iter();
    let fitted = fitted.filter(|cost| cost.provenance() == Some(Provenance::Fitted));
    let names: Vec<String> = fitted.map(|cost| cost.key.to_string()).collect();
    let note = if names.is_empty() {
        String::new()
    } else {
        let names = names.join(", ");
        format!("Fitted to a published result, which therefore confirms nothing: {names}.")
    };
    Table {
        title: "Costs in nanoseconds, at each card".to_owned(),
        note,
        columns: ["cost", "low", "mid", "high", "source"]
            .map(str::to_owned)
            .to_vec(),
        rows: text.costs.iter().flat_map(rows).collect(),
    }
}

fn jitter(text: &ProfileText) -> Table {
    let row = |name: String, range: Range, source: &str| {
        let cards = Card::ALL.map(|card| range.at(card).to_string());
        [name]
            .into_iter()
            .chain(cards)
            .chain([source.to_owned()])
            .collect()
    };
    let rows = text.jitter.iter().flat_map(|of| {
        let name = of.kind.name();
        [
            row(format!("{name}_every_us"), of.every_us, &of.every_source),
            row(format!("{name}_ns"), of.length_ns, &of.length_source),
        ]
    });
    Table {
        title: "Jitter: how often something disturbs a busy CPU, and for how long, at each card"
            .to_owned(),
        note: String::new(),
        columns: ["jitter", "low", "mid", "high", "source"]
            .map(str::to_owned)
            .to_vec(),
        rows: rows.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_machine_can_be_described_and_loaded() {
        let machines = list().rows;
        assert!(machines.len() >= 6);
        for name in machines.iter().map(|row| &row[0]) {
            let uneven = name == "phone-8";
            let tables = if uneven { 5 } else { 4 };
            assert_eq!(describe(name).unwrap().len(), tables, "{name}");
            assert_eq!(&load(name, Card::Mid).unwrap().name, name);
        }
    }

    #[test]
    fn a_machine_of_big_and_little_cores_tells_their_speeds() {
        let speeds = &describe("phone-8").unwrap()[1].rows;
        let told = speeds.iter().map(|row| row[..5].join(" "));
        assert_eq!(
            told.collect::<Vec<_>>(),
            [
                "little 4 0.50 0.35 0.20",
                "middle 3 1.00 1.00 1.00",
                "big 1 1.22 1.17 1.00"
            ]
        );
        assert!(speeds.iter().all(|row| !row[5].is_empty()));
    }

    #[test]
    fn a_machine_tells_what_its_busy_cpus_take_from_each_other() {
        let tables = describe("epyc-9654-2s").unwrap();
        let of_load = tables
            .iter()
            .find(|table| table.title.starts_with("Effects of load"));
        let rows = &of_load.expect("the machine has effects of load").rows;
        let told: Vec<String> = rows.iter().map(|row| row[..4].join(" ")).collect();
        assert_eq!(told.len(), 7, "{told:?}");
        assert_eq!(told[0], "clock.all_core 1.00 0.96 0.65");
        assert_eq!(told[2], "bandwidth.node, GB/s 390 358 325");
        assert_eq!(told[6], "bandwidth.lru_move, bytes 64 128 384");
        assert!(rows.iter().all(|row| !row[4].is_empty()));
    }

    #[test]
    fn fitted_prices_and_second_points_are_shown() {
        let costs = |name| {
            let mut tables = describe(name).unwrap().into_iter();
            let found = tables.find(|table| table.title.starts_with("Costs"));
            found.expect("every machine has costs")
        };
        let epyc = costs("epyc-9654-2s");
        assert!(epyc.note.ends_with(": work.fault."), "{}", epyc.note);
        assert_eq!(costs("grace-72").note, "");
        let free = epyc.rows.iter().position(|row| row[0] == "work.buddy_free");
        let free = free.expect("every machine has this price");
        assert_eq!(epyc.rows[free][1..4], ["35", "40", "95"]);
        let longer = epyc.rows[free + 1].join(" ");
        assert_eq!(
            longer,
            "  if a hold moves 2047 pages 28 32 85 above: for 63 pages"
        );
    }

    #[test]
    fn a_slip_in_a_name_is_bad_input_that_offers_the_name() {
        let error = describe("grace-27").expect_err("a slip");
        assert!(
            error.is_bad_input() && error.to_string().contains("grace-72"),
            "{error}"
        );
    }
}
