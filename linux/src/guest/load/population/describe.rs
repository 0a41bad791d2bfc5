//! Describes the machine and every process, as `/proc` shows them, before memory runs out.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use super::process::{Process, Second};

/// Describes the machine, its groups and every process from `/proc`. For each process that this
/// load started, the text also has facts that `/proc` does not show. `workers` has these processes,
/// by process ID.
pub(super) fn population(
    together: &[&str],
    workers: &BTreeMap<u32, &Process>,
) -> io::Result<String> {
    let (ram, swap) = (meminfo("MemTotal")?, meminfo("SwapTotal")?);
    let mut text = format!("total ram_kib={ram} swap_kib={swap}\n");
    for group in together {
        text += &format!("group /{group} together\n");
    }
    let mut pids: Vec<u32> = Vec::new();
    for entry in fs::read_dir("/proc")? {
        pids.extend(
            entry?
                .file_name()
                .to_str()
                .and_then(|name| name.parse::<u32>().ok()),
        );
    }
    pids.sort_unstable();
    for pid in pids {
        // A process that has exited since `/proc` was listed has no files in `/proc`. The text
        // leaves such a process out.
        if let Ok(line) = describe(pid, workers) {
            text += &line;
        }
    }
    Ok(text)
}

fn describe(pid: u32, workers: &BTreeMap<u32, &Process>) -> io::Result<String> {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}"));
    let (status, stat) = (read("status")?, read("stat")?);
    let (adj, score, group) = (read("oom_score_adj")?, read("oom_score")?, read("cgroup")?);
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    // The rss is field 24 of `/proc/PID/stat`, and the first field after the name is field 3.
    let rss = after_name.split_whitespace().nth(21).unwrap_or("0");
    let parent = after_name.split_whitespace().nth(1).unwrap_or("0");
    let kind = match (pid, parent) {
        (1, _) => "init",
        (2, _) | (_, "2") => "kernel",
        _ => "process",
    };
    let field = |name| field(&status, name).unwrap_or("0");
    let group = group.lines().find_map(|line| line.strip_prefix("0::"));
    let unsaid = unsaid(pid, parent.parse().unwrap_or(0), workers);
    Ok(format!(
        "process pid={pid} kind={kind} adj={} score={} rss={rss} swap_kib={} pte_kib={} nodes={} \
         group={}{unsaid}\n",
        adj.trim(),
        score.trim(),
        field("VmSwap"),
        field("VmPTE"),
        field("Mems_allowed_list"),
        group.unwrap_or("/"),
    ))
}

/// Returns the words for the facts that `/proc` does not show: the node to which the process's
/// policy binds it, and the process whose memory it uses.
fn unsaid(pid: u32, parent: u32, workers: &BTreeMap<u32, &Process>) -> String {
    let policy = |process: &Process| {
        let node = process.node;
        node.map_or_else(String::new, |node| format!(" policy={node}"))
    };
    if let Some(worker) = workers.get(&pid) {
        return policy(worker);
    }
    // A worker of this load starts at most one process: the process that uses the worker's memory.
    // So each child of a worker is such a process.
    match workers.get(&parent) {
        Some(worker) => {
            let vfork = match worker.second {
                Some(Second::Vfork) => " vfork",
                _ => "",
            };
            format!("{} shares={parent}{vfork}", policy(worker))
        }
        None => String::new(),
    }
}

pub(super) fn meminfo(name: &str) -> io::Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let kib = field(&text, name).and_then(|kib| kib.parse().ok());
    kib.ok_or_else(|| io::Error::other(format!("/proc/meminfo has no {name}")))
}

/// Returns the value of the line that begins with `name:`, without blanks around it and without `
/// kB` at its end.
fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = lines.find(|(known, _)| *known == name)?;
    Some(value.trim().trim_end_matches(" kB"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_described_by_what_proc_says_of_it() {
        let line = describe(std::process::id(), &BTreeMap::new()).unwrap();
        assert!(
            line.starts_with("process pid=") && line.ends_with('\n'),
            "{line}"
        );
        for word in [
            "kind=process",
            "adj=",
            "score=",
            "rss=",
            "pte_kib=",
            "nodes=",
            "group=/",
        ] {
            assert!(line.contains(word), "{line}");
        }
        let text = population(&["a"], &BTreeMap::new()).unwrap();
        assert!(text.starts_with("total ram_kib="), "{text}");
        assert!(text.contains("\ngroup /a together\n") && text.contains("kind=init"));
    }

    #[test]
    fn a_second_process_is_described_by_the_worker_that_made_it() {
        let of = |text: &str| super::super::process::parse(text).unwrap().remove(0);
        let (bound, vfork, plain) = (of("4+node=1+shared"), of("4+vfork"), of("4"));
        let workers = BTreeMap::from([(7, &bound), (8, &vfork), (9, &plain)]);
        let unsaid = |pid, parent| unsaid(pid, parent, &workers);
        assert_eq!(unsaid(7, 1), " policy=1");
        assert_eq!(unsaid(17, 7), " policy=1 shares=7");
        assert_eq!(unsaid(18, 8), " shares=8 vfork");
        assert_eq!((unsaid(9, 1), unsaid(1, 0)), (String::new(), String::new()));
    }
}
