//! Processes of given sizes and `oom_score_adj`; then one that must not be killed takes all memory.
//!
//! The text `population` of the recording has a line for each process before memory runs out, with what
//! the kernel says of it, then a line for each process that was killed, in the order in which its parent saw it
//! end. The order in which the kernel chose them is that of the kernel's own events.

use std::fmt::Write;
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::thread;
use std::time::Duration;

use super::{Guest, Load, Parameter, Values, leave, mark};
use crate::guest::crew::Crew;
use crate::guest::op::Op;

/// Pages of a MiB.
const MIB_PAGES: usize = 256;
/// Never chosen.
const SPARED: i32 = -1000;
/// How often the leader looks which processes have ended.
const LOOK: Duration = Duration::from_millis(20);

pub(super) const LOAD: Load = Load {
    name: "population",
    about: "Processes of given sizes and oom_score_adj, in memory cgroups if named; then one that \
            is spared takes more and more memory (the text `population` of the recording)",
    parameters: &[
        Parameter::text(
            "processes",
            "MIB[:ADJ[:GROUP]],...: one process each",
            "40,60:-100,80,100:-300,50:200,120,30:500,90:-50",
        ),
        Parameter::number(
            "grow",
            "MiB that the spared process takes",
            1 << 20,
            (1, 1 << 20),
        ),
        Parameter::number("kills", "how many kills end the load", 6, (1, 10_000)),
        Parameter::number("seconds", "how long kills are waited for", 120, (1, 3600)),
    ],
    modules: &[],
    settles: false,
    run,
};

/// One process of the population.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Process {
    mib: usize,
    adj: i32,
    group: Option<String>,
}

fn run(_guest: &Guest, values: &Values) -> io::Result<()> {
    let processes = parse(values.text("processes")).map_err(io::Error::other)?;
    // The leader is not to be chosen; each process it starts writes its own value.
    fs::write("/proc/self/oom_score_adj", SPARED.to_string())?;
    // One mapping may be larger than memory.
    fs::write("/proc/sys/vm/overcommit_memory", "1")?;
    enable_groups(&processes)?;
    let programs: Vec<Vec<Op>> = processes.iter().map(program).collect();
    let mut crew = Crew::ready(&programs)?;
    crew.go()?;
    crew.all_reached()?;
    let mut text = String::from("# pid mib adj group oom_score rss_pages\n");
    for (pid, process) in crew.pids().into_iter().zip(&processes) {
        describe(&mut text, pid, process)?;
    }
    let grow = vec![
        Op::OomScoreAdj(SPARED),
        Op::Map(values.count("grow") * MIB_PAGES),
    ];
    let mut grower = Crew::ready(&[grow])?;
    mark("memory runs out")?;
    grower.go()?;
    watch(&mut crew, values, &mut text)?;
    grower.kill()?;
    crew.kill()?;
    leave("population", &text)
}

fn program(process: &Process) -> Vec<Op> {
    let mut program = vec![Op::OomScoreAdj(process.adj)];
    program.extend(process.group.clone().map(Op::Group));
    program.extend([Op::Map(process.mib * MIB_PAGES), Op::Report, Op::Wait]);
    program
}

/// Waits until so many are dead, or so long.
fn watch(crew: &mut Crew, values: &Values, text: &mut String) -> io::Result<()> {
    let pids = crew.pids();
    let mut dead = vec![false; pids.len()];
    let most = values.count("kills").min(pids.len());
    let looks = values.number("seconds") * 1000 / 20;
    for _ in 0..looks {
        for (nth, status) in crew.ended()?.into_iter().enumerate() {
            if let Some(status) = status
                && !dead[nth]
            {
                dead[nth] = true;
                let how = status.signal().unwrap_or(0);
                writeln!(text, "ended {} signal {how}", pids[nth]).map_err(io::Error::other)?;
            }
        }
        if dead.iter().filter(|&&dead| dead).count() >= most {
            return Ok(());
        }
        thread::sleep(LOOK);
    }
    text.push_str("# not as many were killed as were to be\n");
    Ok(())
}

fn describe(text: &mut String, pid: u32, process: &Process) -> io::Result<()> {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}"));
    let statm = read("statm")?;
    let group = process.group.as_deref().unwrap_or("-");
    let score = read("oom_score")?;
    let rss = statm.split(' ').nth(1).unwrap_or("0");
    let (mib, adj) = (process.mib, process.adj);
    writeln!(text, "{pid} {mib} {adj} {group} {} {rss}", score.trim()).map_err(io::Error::other)
}

fn enable_groups(processes: &[Process]) -> io::Result<()> {
    if processes.iter().all(|process| process.group.is_none()) {
        return Ok(());
    }
    fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+memory")
}

fn parse(text: &str) -> Result<Vec<Process>, String> {
    let process = |text: &str| -> Option<Process> {
        let mut parts = text.splitn(3, ':');
        let mib = parts.next()?.parse().ok()?;
        let adj = parts.next().map_or(Some(0), |adj| adj.parse().ok())?;
        let group = parts.next().map(ToOwned::to_owned);
        let named = group
            .as_ref()
            .is_none_or(|name| !name.is_empty() && !name.contains('/'));
        (mib > 0 && (-1000..=1000).contains(&adj) && named).then_some(Process { mib, adj, group })
    };
    let each = text.split(',');
    each.map(|text| process(text).ok_or_else(|| format!("`{text}` is no MIB[:ADJ[:GROUP]]")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_population_reads_from_its_text() {
        let of = |mib, adj, group: Option<&str>| Process {
            mib,
            adj,
            group: group.map(ToOwned::to_owned),
        };
        assert_eq!(
            parse("40,60:-100,80:0:small").unwrap(),
            [
                of(40, 0, None),
                of(60, -100, None),
                of(80, 0, Some("small"))
            ]
        );
        for text in ["", "40,", "0", "40:2000", "x", "40:1:", "40:1:a/b"] {
            assert!(parse(text).unwrap_err().contains("is no MIB"), "{text}");
        }
    }

    #[test]
    fn a_process_is_as_large_as_it_was_to_be() {
        let process = parse("3:-5:g").unwrap().remove(0);
        let program = program(&process);
        assert_eq!(program[0], Op::OomScoreAdj(-5));
        assert_eq!(program[1], Op::Group("g".to_owned()));
        assert!(program.contains(&Op::Map(768)));
    }
}
