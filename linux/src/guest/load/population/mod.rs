//! The load `population`: starts processes with given sizes and `oom_score_adj` values. Then other
//! processes, which the OOM killer must not choose, allocate all memory, MiB by MiB.
//!
//! The load stores two texts in the recording. `oom population` describes every process before
//! memory runs out, as `/proc` shows it. `kernel log` has the kernel's messages about each
//! shortage: the table of candidates, and the processes that were killed. The order of the victims
//! also follows from the events.

mod describe;
mod kernel_log;
mod process;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::thread;
use std::time::Duration;

use self::describe::{meminfo, population};
use self::kernel_log::KernelLog;
use self::process::Process;
use super::{Guest, Load, Parameter, Values, leave, mark};
use crate::guest::crew::Crew;
use crate::guest::op::Op;

/// The number of pages in a MiB.
const MIB_PAGES: usize = 256;
/// The `oom_score_adj` of processes that the OOM killer never chooses.
const SPARED: i32 = -1000;
/// The interval at which the leader looks for processes that have exited, and reads the kernel's
/// log.
const LOOK: Duration = Duration::from_millis(20);
/// The time from the allocation of one MiB, by any process, to the allocation of the next MiB, in
/// milliseconds. This delay gives a victim time to exit. It also keeps shortages apart, because the
/// kernel logs at most ten tables of processes in five seconds.
const STEP_MS: u64 = 30;

pub(super) const LOAD: Load = Load {
    name: "population",
    about: "Processes of given sizes and oom_score_adj, in memory cgroups if named; then processes that the OOM killer spares take more and more memory (the texts `oom population` and `kernel log`)",
    parameters: &[
        Parameter::text(
            "processes",
            "KIB[:ADJ[:GROUP]][+node=N][+shared][+vfork],...: one process each; +node binds its memory to a node by its policy, +shared and +vfork add a second process that uses the same memory",
            "40960,61440:-100,81920,8192:-300,51200:200,61500,30720:500,61440:-50",
        ),
        Parameter::text(
            "together",
            "groups whose members die together (memory.oom.group), joined by commas",
            "",
        ),
        Parameter::text(
            "node",
            "the node to which the policy of the processes that take memory binds them; empty: none",
            "",
        ),
        Parameter::number(
            "kills",
            "number of kills after which the load ends",
            6,
            (1, 10_000),
        ),
        Parameter::number(
            "seconds",
            "how long the load waits for kills",
            120,
            (1, 3600),
        ),
    ],
    modules: &[],
    settles: false,
    run,
};

fn run(guest: &Guest, values: &Values) -> io::Result<()> {
    let processes = process::parse(values.text("processes")).map_err(io::Error::other)?;
    let node = node(values.text("node"))?;
    // The OOM killer must not choose the leader; each process that the leader starts sets its own
    // `oom_score_adj`.
    fs::write("/proc/self/oom_score_adj", SPARED.to_string())?;
    let together: Vec<&str> = list(values.text("together")).collect();
    make_groups(&processes, &together)?;
    let programs: Vec<Vec<Op>> = processes
        .iter()
        .zip((0..guest.cpus).cycle())
        .map(|(process, cpu)| process.program(cpu))
        .collect();
    let mut crew = Crew::ready(&programs)?;
    let workers: BTreeMap<u32, &Process> = crew.pids().zip(&processes).collect();
    crew.go()?;
    crew.all_reached()?;
    let mut log = KernelLog::from_now()?;
    let mut growers = Crew::ready(&growth(guest, node, mib_of_machine()?))?;
    leave("oom population", &population(&together, &workers)?)?;
    mark("memory runs out")?;
    growers.go()?;
    watch(&mut crew, values, &mut log)?;
    growers.kill()?;
    crew.kill()?;
    log.read()?;
    leave("kernel log", &log.kept)
}

/// Parses the node that `text` names; returns `None` if `text` is empty.
fn node(text: &str) -> io::Result<Option<u32>> {
    if text.is_empty() {
        return Ok(None);
    }
    let node = text.parse().map(Some);
    node.map_err(|_| io::Error::other(format!("node={text}: it must be the number of a node")))
}

/// Returns the size of memory and swap together, in MiB.
fn mib_of_machine() -> io::Result<u64> {
    Ok(meminfo("MemTotal")? / 1024 + meminfo("SwapTotal")? / 1024)
}

/// Returns programs that together allocate `mib` MiB, one MiB at a time. On each CPU, one process
/// allocates a part of this memory. A single process would allocate and free all memory on one CPU,
/// whose ring buffer could not hold the events.
fn growth(guest: &Guest, node: Option<u32>, mib: u64) -> Vec<Vec<Op>> {
    let program = |cpu: u32| {
        let mut program = vec![Op::Cpu(cpu), Op::OomScoreAdj(SPARED)];
        program.extend(node.map(Op::Bind));
        for turn in (u64::from(cpu)..mib).step_by(guest.cpus as usize) {
            program.extend([Op::Until(turn * STEP_MS * 1000), Op::Map(MIB_PAGES)]);
        }
        program.push(Op::Wait);
        program
    };
    (0..guest.cpus).map(program).collect()
}

/// Waits until `kills` processes have exited, or until `seconds` seconds have passed.
fn watch(crew: &mut Crew, values: &Values, log: &mut KernelLog) -> io::Result<()> {
    let looks = values.number("seconds") * 1000 / 20;
    for _ in 0..looks {
        log.read()?;
        let ended = crew.ended()?;
        if ended.iter().filter(|status| status.is_some()).count() >= values.count("kills") {
            return Ok(());
        }
        thread::sleep(LOOK);
    }
    mark("fewer processes were killed than asked for")
}

fn make_groups(processes: &[Process], together: &[&str]) -> io::Result<()> {
    let groups = processes
        .iter()
        .filter_map(|process| process.group.as_deref());
    let groups: Vec<&str> = groups.chain(together.iter().copied()).collect();
    if groups.is_empty() {
        return Ok(());
    }
    fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+memory")?;
    for group in groups {
        fs::create_dir_all(format!("/sys/fs/cgroup/{group}"))?;
    }
    for group in together {
        fs::write(format!("/sys/fs/cgroup/{group}/memory.oom.group"), "1")?;
    }
    Ok(())
}

fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_that_take_memory_are_spared_and_bound_before_they_begin() {
        let programs = growth(&Guest { cpus: 2 }, node("1").unwrap(), 5);
        let step = |turn: u64| [Op::Until(turn * 30_000), Op::Map(MIB_PAGES)];
        let begin = |cpu| [Op::Cpu(cpu), Op::OomScoreAdj(SPARED), Op::Bind(1)];
        let end = [Op::Wait];
        assert_eq!(
            programs[0],
            [&begin(0)[..], &step(0), &step(2), &step(4), &end].concat()
        );
        assert_eq!(
            programs[1],
            [&begin(1)[..], &step(1), &step(3), &end].concat()
        );
        let unbound = growth(&Guest { cpus: 1 }, node("").unwrap(), 1);
        assert_eq!(unbound[0][2..4], step(0));
        assert!(node("one").unwrap_err().to_string().contains("node=one"));
    }
}
