//! Processes of given sizes and `oom_score_adj`; then one that must not be killed takes all memory,
//! MiB by MiB.
//!
//! The recording gets two texts. `oom population` has what `/proc` says of every process before memory
//! runs out; `kernel log` has what the kernel says of each shortage: the table of processes it chose
//! from, and those it killed. The order of the victims is also that of the events.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::thread;
use std::time::Duration;

use super::{Guest, Load, Parameter, Values, leave, mark};
use crate::guest::crew::Crew;
use crate::guest::op::Op;

/// Pages of a MiB.
const MIB_PAGES: usize = 256;
/// Never chosen.
const SPARED: i32 = -1000;
/// How often the leader looks which processes have ended and what the kernel has logged.
const LOOK: Duration = Duration::from_millis(20);
/// From one MiB to the next: time for a victim to exit, and for the kernel to be asked for tables of at
/// most ten shortages in five seconds.
const STEP_MS: u64 = 30;

pub(super) const LOAD: Load = Load {
    name: "population",
    about: "Processes of given sizes and oom_score_adj, in memory cgroups if named; then a process that the OOM killer spares takes more and more memory (the texts `oom population` and `kernel log`)",
    parameters: &[
        Parameter::text(
            "processes",
            "KIB[:ADJ[:GROUP]],...: one process each",
            "40960,61440:-100,81920,8192:-300,51200:200,61500,30720:500,61440:-50",
        ),
        Parameter::text(
            "together",
            "groups whose members die together (memory.oom.group), joined by commas",
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

/// One process of the population.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Process {
    kib: usize,
    adj: i32,
    group: Option<String>,
}

fn run(_guest: &Guest, values: &Values) -> io::Result<()> {
    let processes = parse(values.text("processes")).map_err(io::Error::other)?;
    // The leader is not to be chosen; each process it starts writes its own value.
    fs::write("/proc/self/oom_score_adj", SPARED.to_string())?;
    let together: Vec<&str> = list(values.text("together")).collect();
    make_groups(&processes, &together)?;
    let programs: Vec<Vec<Op>> = processes.iter().map(program).collect();
    let mut crew = Crew::ready(&programs)?;
    crew.go()?;
    crew.all_reached()?;
    let mut log = KernelLog::from_now()?;
    let mut grower = Crew::ready(&[growth()?])?;
    leave("oom population", &population(&together)?)?;
    mark("memory runs out")?;
    grower.go()?;
    watch(&mut crew, values, &mut log)?;
    grower.kill()?;
    crew.kill()?;
    log.read()?;
    leave("kernel log", &log.kept)
}

fn program(process: &Process) -> Vec<Op> {
    let mut program = vec![Op::OomScoreAdj(process.adj)];
    program.extend(process.group.clone().map(Op::Group));
    program.extend([Op::Map(process.kib.div_ceil(4)), Op::Report, Op::Wait]);
    program
}

/// More than there is, one MiB after the other.
fn growth() -> io::Result<Vec<Op>> {
    let mib = meminfo("MemTotal")? / 1024 + meminfo("SwapTotal")? / 1024;
    let step = [Op::Map(MIB_PAGES), Op::Sleep(STEP_MS)];
    let steps = (0..mib).flat_map(|_| step.clone());
    Ok([Op::OomScoreAdj(SPARED)].into_iter().chain(steps).collect())
}

/// Waits until the number `kills` of processes have died, or for the time `seconds`.
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

/// What the kernel has logged since a moment, as far as it is about shortages.
struct KernelLog {
    records: File,
    kept: String,
}

impl KernelLog {
    /// From the next message on.
    fn from_now() -> io::Result<Self> {
        let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits());
        let nonblocking = nonblocking.map_err(io::Error::other)?;
        let mut options = OpenOptions::new();
        let records = options
            .read(true)
            .custom_flags(nonblocking)
            .open("/dev/kmsg")?;
        let mut log = Self {
            records,
            kept: String::new(),
        };
        log.read()?;
        log.kept.clear();
        Ok(log)
    }

    /// Takes all that is there by now. A read gives one message.
    fn read(&mut self) -> io::Result<()> {
        let mut message = [0; 8192];
        loop {
            match self.records.read(&mut message) {
                Ok(0) => return Ok(()),
                Ok(bytes) => self.keep(&String::from_utf8_lossy(&message[..bytes])),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                // Messages were overwritten; the next read goes on behind them.
                Err(error)
                    if error.raw_os_error() == Some(rustix::io::Errno::PIPE.raw_os_error()) =>
                {
                    self.kept.push_str("(messages are missing)\n");
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Keeps the first line of a message, `level,number,µs,flags;text`, if it is of a shortage.
    fn keep(&mut self, message: &str) {
        let Some((prefix, text)) = message.split_once(';') else {
            return;
        };
        let line = text.lines().next().unwrap_or_default();
        if !is_of_shortage(line) {
            return;
        }
        let us: u64 = prefix
            .split(',')
            .nth(2)
            .and_then(|us| us.parse().ok())
            .unwrap_or(0);
        let (seconds, us) = (us / 1_000_000, us % 1_000_000);
        // A String cannot refuse a write.
        let _ = writeln!(self.kept, "[{seconds:5}.{us:06}] {line}");
    }
}

/// Whether a reader of shortages needs this line; the rest of a report is stacks and lists.
fn is_of_shortage(line: &str) -> bool {
    let has = |words: &[&str]| words.iter().any(|word| line.contains(word));
    has(&[
        " invoked oom-killer: ",
        " present:",
        " pages RAM",
        " pages reserved",
        "oom-kill:",
        ": Killed process ",
        "memory.oom.group",
    ]) || [
        "CPU: ",
        "memory: usage ",
        "swap: usage ",
        "Total swap ",
        "[",
    ]
    .iter()
    .any(|begin| line.starts_with(begin))
}

/// What `/proc` says of the machine, its groups and every process.
fn population(together: &[&str]) -> io::Result<String> {
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
        // One that has ended meanwhile has nothing to say.
        if let Ok(line) = describe(pid) {
            text += &line;
        }
    }
    Ok(text)
}

fn describe(pid: u32) -> io::Result<String> {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}"));
    let (status, stat) = (read("status")?, read("stat")?);
    let (adj, score, group) = (read("oom_score_adj")?, read("oom_score")?, read("cgroup")?);
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    // Field 24; the first behind the name is field 3.
    let rss = after_name.split_whitespace().nth(21).unwrap_or("0");
    let parent = after_name.split_whitespace().nth(1).unwrap_or("0");
    let kind = match (pid, parent) {
        (1, _) => "init",
        (2, _) | (_, "2") => "kernel",
        _ => "process",
    };
    let field = |name| field(&status, name).unwrap_or("0");
    let group = group.lines().find_map(|line| line.strip_prefix("0::"));
    Ok(format!(
        "process pid={pid} kind={kind} adj={} score={} rss={rss} swap_kib={} pte_kib={} nodes={} \
         group={}\n",
        adj.trim(),
        score.trim(),
        field("VmSwap"),
        field("VmPTE"),
        field("Mems_allowed_list"),
        group.unwrap_or("/"),
    ))
}

fn meminfo(name: &str) -> io::Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let kib = field(&text, name).and_then(|kib| kib.parse().ok());
    kib.ok_or_else(|| io::Error::other(format!("/proc/meminfo has no {name}")))
}

/// The value of `Name:   value kB`.
fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = lines.find(|(known, _)| *known == name)?;
    Some(value.trim().trim_end_matches(" kB"))
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

fn parse(text: &str) -> Result<Vec<Process>, String> {
    let process = |text: &str| -> Option<Process> {
        let mut parts = text.splitn(3, ':');
        let kib = parts.next()?.parse().ok()?;
        let adj = parts.next().map_or(Some(0), |adj| adj.parse().ok())?;
        let group = parts.next().map(ToOwned::to_owned);
        let named = group
            .as_ref()
            .is_none_or(|name| !name.is_empty() && !name.contains('/'));
        (kib > 0 && (-1000..=1000).contains(&adj) && named).then_some(Process { kib, adj, group })
    };
    let each = text.split(',');
    each.map(|text| process(text).ok_or_else(|| format!("`{text}` is no KIB[:ADJ[:GROUP]]")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_population_reads_from_its_text() {
        let of = |kib, adj, group: Option<&str>| Process {
            kib,
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
            assert!(parse(text).unwrap_err().contains("is no KIB"), "{text}");
        }
    }

    #[test]
    fn a_process_is_as_large_as_it_was_to_be() {
        let process = parse("3001:-5:g").unwrap().remove(0);
        let program = program(&process);
        assert_eq!(program[0], Op::OomScoreAdj(-5));
        assert_eq!(program[1], Op::Group("g".to_owned()));
        assert!(program.contains(&Op::Map(751)));
    }

    #[test]
    fn this_process_is_described_by_what_proc_says_of_it() {
        let line = describe(std::process::id()).unwrap();
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
        let text = population(&["a"]).unwrap();
        assert!(text.starts_with("total ram_kib="), "{text}");
        assert!(text.contains("\ngroup /a together\n") && text.contains("kind=init"));
    }

    #[test]
    fn of_the_log_only_lines_of_shortages_are_kept() {
        let kept = [
            "a invoked oom-killer: gfp_mask=0x1, order=0, oom_score_adj=-1000",
            "Node 0 DMA free:1156kB boost:0kB present:15992kB managed:15360kB",
            "[    169]     0   169      448      274        0        0       274    40960        0 -1000 a",
            "98174 pages RAM",
            "memory: usage 61440kB, limit 61440kB, failcnt 84",
            "Memory cgroup out of memory: Killed process 177 (exe) total-vm:81692kB",
        ];
        for line in kept {
            assert!(is_of_shortage(line), "{line}");
        }
        for line in [
            "Call Trace:",
            " dump_stack_lvl+0x64/0x80",
            "lowmem_reserve[]: 0 275 275",
        ] {
            assert!(!is_of_shortage(line), "{line}");
        }
    }
}
