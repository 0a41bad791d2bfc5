//! What Plimsoll uses if it runs on real threads of this computer.

use plimsoll_host::affinity::CpuMask;
use plimsoll_host::fronts::Fronts;
use plimsoll_host::{Host, numa, topology};
use plimsoll_mm::topology::Topology;

use crate::report::{Table, tabulate};

/// Two tables: what a machine on this computer consists of, and the kinds of fronts (stacks of free
/// pages in front of the CPUs' page lists) that it could use.
#[must_use]
pub fn here() -> [Table; 2] {
    [parts(&Host::new()), kinds(Fronts::best())]
}

fn parts(host: &Host) -> Table {
    let sequences = match Fronts::registrar() {
        Some(registrar) => format!("yes; {registrar} registers each thread"),
        None => "no".to_owned(),
    };
    let counters = match host.fronts() {
        Fronts::Restartable => "a restartable sequence on the CPU's home, else an atomic one",
        Fronts::Owned | Fronts::Off => "an atomic addition",
    };
    let parts = [
        ("CPUs that this process may use", cpus()),
        ("CPUs of a machine", places()),
        ("nodes with memory", nodes()),
        ("restartable sequences", sequences),
        ("fronts", host.fronts().to_string()),
        ("an addition to a counter", counters.to_owned()),
    ];
    tabulate!(
        "Plimsoll on this computer",
        "A machine uses this unless the program that makes it chooses otherwise. `plimsoll bench page` \
         and `plimsoll bench counter` measure it.",
        &parts,
        |(part, here)| {
            "part" => *part,
            "here" => here.clone(),
        }
    )
}

fn kinds(best: Fronts) -> Table {
    tabulate!(
        "Kinds of fronts",
        "A front is a stack of free pages in front of a CPU's page lists. docs/decisions/0017-fronts.md \
         describes the kinds.",
        &[Fronts::Restartable, Fronts::Owned, Fronts::Off],
        |kind| {
            "kind" => kind.to_string(),
            "here" => match kind {
                _ if *kind == best => "used",
                _ if kind.is_available() => "available",
                _ => "not available",
            },
            "needs" => kind.needs(),
        }
    )
}

fn cpus() -> String {
    let mask = CpuMask::of_this_thread();
    let cpus: Vec<String> = mask.cpus().iter().map(u32::to_string).collect();
    match &cpus[..] {
        [] => "unknown".to_owned(),
        [first, .., last] if cpus.len() > 8 => format!("{} ({first} to {last})", cpus.len()),
        few => format!("{} ({})", few.len(), few.join(", ")),
    }
}

fn places() -> String {
    match topology::read() {
        Ok(topology) => described(&topology),
        Err(why) => format!("one for each of them, all alike ({why})"),
    }
}

fn described(topology: &Topology) -> String {
    let count = |of: fn(&Topology, plimsoll_mm::units::CpuId) -> u32| {
        let mut all: Vec<u32> = topology.ids().map(|cpu| of(topology, cpu)).collect();
        all.sort_unstable();
        all.dedup();
        all.len()
    };
    let cores = count(|topology, cpu| topology.place(cpu).core);
    let caches = count(|topology, cpu| topology.place(cpu).llc);
    let sockets = count(|topology, cpu| topology.place(cpu).socket);
    format!(
        "{} (cores: {cores}; last-level caches: {caches}; sockets: {sockets}; nodes: {})",
        topology.cpus(),
        topology.nodes(),
    )
}

fn nodes() -> String {
    match numa::nodes_with_memory() {
        Ok(nodes) => {
            let names: Vec<String> = nodes.iter().map(|node| node.0.to_string()).collect();
            format!("{} ({})", nodes.len(), names.join(", "))
        }
        Err(why) => format!("unknown ({why})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_kind_of_fronts_is_used_and_it_is_the_machines() {
        let [parts, kinds] = here();
        let used: Vec<&Vec<String>> = kinds.rows.iter().filter(|row| row[1] == "used").collect();
        assert_eq!(used.len(), 1);
        let fronts = parts.rows.iter().find(|row| row[0] == "fronts");
        assert_eq!(fronts.map(|row| &row[1]), Some(&used[0][0]));
    }

    #[test]
    fn a_topology_is_described_by_its_counts() {
        let said = described(&Topology::flat(3));
        assert!(
            said.starts_with("3 (cores: 3; ") && said.ends_with("nodes: 1)"),
            "{said}"
        );
    }
}
