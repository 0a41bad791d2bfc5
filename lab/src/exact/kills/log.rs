//! Reads the kernel's log of each shortage: the table of candidate processes, the part of the
//! machine that was short of memory, and the killed processes.
//!
//! The kernel prints the table just after its selection. Before 6.18, the kernel uses approximate
//! sums of each process's counters, both for the points of the selection and for the table.

use plimsoll_recording::Recording;

/// The name of the recording's text that holds the kernel's log.
pub(crate) const TEXT: &str = "kernel log";

/// A shortage of memory, as the kernel's log describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Shortage {
    /// The id of the process whose allocation ran into the shortage.
    pub(super) asked_by: Option<u32>,
    /// True if an operator requested the kill through SysRq. In this case, memory was not
    /// necessarily short.
    pub(super) by_operator: bool,
    /// True if the kernel killed the allocating process without a selection
    /// (`vm.oom_kill_allocating_task`).
    pub(super) kills_who_asks: bool,
    /// For each node, its index and how many pages are present in it.
    pub(super) present: Vec<(u32, u64)>,
    /// The machine's memory, in pages.
    pub(super) ram: u64,
    /// The part of `ram` that the page allocator does not manage, in pages.
    pub(super) reserved: u64,
    /// The machine's swap, in pages.
    pub(super) swap: u64,
    /// The memory limit of the memory cgroup that ran out, in pages.
    pub(super) limit: Option<u64>,
    /// The swap limit of the memory cgroup that ran out, in pages.
    pub(super) swap_limit: Option<u64>,
    /// The processes that the kernel chose from, in the order of the table that the kernel printed.
    pub(super) tasks: Vec<Task>,
    /// The part of the machine in which memory was short.
    pub(super) place: Place,
    /// True if the line that states the kernel's choice was read. Between this line and the next
    /// shortage, the log can have reports about something else, such as a failed allocation.
    chosen: bool,
    /// The ids of the chosen process and of all processes that the kernel killed together with the
    /// chosen process, in the order of the log.
    pub(super) killed: Vec<u32>,
}

/// The part of the machine in which memory was short (`constraint=`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Place {
    /// The whole machine.
    #[default]
    Machine,
    /// The listed nodes, which the cpuset of the allocating process allows.
    Nodes(Vec<u32>),
    /// The listed nodes, which the memory policy of the allocating process allows.
    Policy(Vec<u32>),
    /// The memory cgroup at this path.
    Group(String),
}

/// A row of the kernel's table: a process and its memory. Fields are in pages, unless their names
/// say bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Task {
    pub(super) pid: u32,
    pub(super) resident: u64,
    pub(super) table_bytes: u64,
    pub(super) swap: u64,
    pub(super) adj: i32,
}

/// The shortages of a recording, in order. Empty if the recording lacks the kernel's log.
pub(super) fn shortages(recording: &Recording) -> Vec<Shortage> {
    recording.header.text(TEXT).map(parse).unwrap_or_default()
}

fn parse(log: &str) -> Vec<Shortage> {
    let mut all: Vec<Shortage> = Vec::new();
    for line in log.lines().map(message) {
        if line.contains(" invoked oom-killer: ") {
            all.push(Shortage {
                by_operator: line.contains("order=-1,"),
                ..Shortage::default()
            });
        } else if let Some(shortage) = all.last_mut() {
            shortage.read(line);
        }
    }
    all
}

/// A line of the log without its timestamp.
fn message(line: &str) -> &str {
    let line = line.trim_start();
    let stamped = line
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("] "));
    match stamped {
        // A timestamp and a row of the table both begin with a bracket. A timestamp has a decimal
        // point in its brackets, but a row has a process id without a decimal point.
        Some((time, message)) if time.contains('.') && time.trim().parse::<f64>().is_ok() => {
            message
        }
        _ => line,
    }
}

impl Shortage {
    /// Stores the facts that `line` states. Most lines state nothing that the replay needs.
    fn read(&mut self, line: &str) {
        if let Some(pid) = number(line, ": Killed process ") {
            self.kills_who_asks |= line.contains("(oom_kill_allocating_task)");
            // If the kernel kills all members of a memory cgroup together, the log names the first
            // victim twice.
            if !self.killed.contains(&pid) {
                self.killed.push(pid);
            }
        } else if !self.chosen {
            self.read_report(line);
        }
    }

    /// Stores the facts in one line of the kernel's report, up to the line `oom-kill:`.
    fn read_report(&mut self, line: &str) {
        if let Some(row) = Task::read(line) {
            self.tasks.push(row);
        } else if let Some(choice) = line.strip_prefix("oom-kill:") {
            self.place = place(choice);
            self.chosen = true;
        } else if line.starts_with("CPU: ") {
            self.asked_by = self.asked_by.or_else(|| number(line, "PID: "));
        } else if line.starts_with("memory: usage ") {
            self.limit = kib(line, "limit ").map(pages);
        } else if line.starts_with("swap: usage ") {
            self.swap_limit = kib(line, "limit ").map(pages);
        } else if line.starts_with("Total swap = ") {
            self.swap = kib(line, "= ").map_or(0, pages);
        } else if let Some(count) = line.strip_suffix(" pages RAM") {
            self.ram = count.parse().unwrap_or(0);
        } else if let Some(count) = line.strip_suffix(" pages reserved") {
            self.reserved = count.parse().unwrap_or(0);
        } else if let Some(zone) = line.strip_prefix("Node ") {
            self.add_zone(zone);
        }
    }

    fn add_zone(&mut self, zone: &str) {
        let node = zone.split(' ').next().and_then(|node| node.parse().ok());
        let Some((node, present)) = node.zip(kib(zone, " present:").map(pages)) else {
            return;
        };
        match self.present.iter_mut().find(|(known, _)| *known == node) {
            Some((_, sum)) => *sum += present,
            None => self.present.push((node, present)),
        }
    }
}

impl Task {
    /// Reads a row of the kernel's table of processes, such as
    /// `[  169]     0   169   448   274    0    0   274    40960    0   -1000 name`.
    fn read(line: &str) -> Option<Self> {
        let (pid, row) = line.strip_prefix('[')?.split_once(']')?;
        let mut columns = row.split_whitespace().skip(3);
        let mut next = || columns.next();
        Some(Self {
            pid: pid.trim().parse().ok()?,
            resident: next()?.parse().ok()?,
            table_bytes: {
                let (_anon, _file, _shmem) = (next()?, next()?, next()?);
                next()?.parse().ok()?
            },
            swap: next()?.parse().ok()?,
            adj: next()?.parse().ok()?,
        })
    }
}

/// Returns the part of the machine in which memory was short. `choice` is the line that states the
/// kernel's choice, such as
/// `constraint=CONSTRAINT_CPUSET,nodemask=(null),cpuset=/n1,mems_allowed=1,global_oom,...`.
fn place(choice: &str) -> Place {
    let word = |name| after(choice, name).unwrap_or_default();
    match choice.split(',').next() {
        Some("constraint=CONSTRAINT_MEMCG") => Place::Group(
            word("oom_memcg=")
                .split(',')
                .next()
                .unwrap_or_default()
                .to_owned(),
        ),
        Some("constraint=CONSTRAINT_MEMORY_POLICY") => Place::Policy(list(word("nodemask="))),
        Some("constraint=CONSTRAINT_CPUSET") => Place::Nodes(list(word("mems_allowed="))),
        _ => Place::Machine,
    }
}

/// Returns the numbers in a list of ranges, such as `0-2,5,global_oom`. The list ends at the first
/// entry that is not a range.
pub(super) fn list(text: &str) -> Vec<u32> {
    let range = |part: &str| -> Option<(u32, u32)> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some((first.parse().ok()?, last.parse().ok()?))
    };
    let ranges = text.split(',').map_while(range);
    ranges.flat_map(|(first, last)| first..=last).collect()
}

fn after<'t>(text: &'t str, word: &str) -> Option<&'t str> {
    let (_, rest) = text.split_once(word)?;
    Some(rest)
}

fn number(text: &str, word: &str) -> Option<u32> {
    let rest = after(text, word)?;
    let end = rest.find(|c: char| !c.is_ascii_digit());
    rest[..end.unwrap_or(rest.len())].parse().ok()
}

fn kib(text: &str, word: &str) -> Option<u64> {
    let (count, _) = after(text, word)?.split_once("kB")?;
    count.trim().parse().ok()
}

const fn pages(kib: u64) -> u64 {
    kib / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_read_the_same_with_and_without_their_time() {
        let row = "[  169]     0   169   448   274    0    0   274    40960    3   -1000 a name";
        let task = Task {
            pid: 169,
            resident: 274,
            table_bytes: 40_960,
            swap: 3,
            adj: -1000,
        };
        for line in [row.to_owned(), format!("[    3.830676] {row}")] {
            assert_eq!(Task::read(message(&line)), Some(task), "{line}");
        }
        assert_eq!(Task::read("[  pid  ]   uid  tgid total_vm      rss"), None);
        assert_eq!(Task::read("[  169]     0   169   448"), None);
    }

    #[test]
    fn every_constraint_names_its_place() {
        let of = |name, rest| place(&format!("constraint=CONSTRAINT_{name},{rest}"));
        assert_eq!(
            of("NONE", "nodemask=(null),cpuset=/,mems_allowed=0"),
            Place::Machine
        );
        let cpuset = of(
            "CPUSET",
            "nodemask=(null),cpuset=n,mems_allowed=0-1,3,global_oom",
        );
        assert_eq!(cpuset, Place::Nodes(vec![0, 1, 3]));
        let policy = of(
            "MEMORY_POLICY",
            "nodemask=2,cpuset=/,mems_allowed=0-3,global_oom",
        );
        assert_eq!(policy, Place::Policy(vec![2]));
        let group = of("MEMCG", "nodemask=(null),oom_memcg=/a/b,task_memcg=/a/b/c");
        assert_eq!(group, Place::Group("/a/b".to_owned()));
    }

    #[test]
    fn an_allocation_that_fails_between_two_shortages_belongs_to_neither() {
        let log = "a invoked oom-killer: gfp_mask=0x0, order=0, oom_score_adj=0\n\
            Node 0 DMA present:4000kB\n\
            oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null)\n\
            Out of memory: Killed process 4 (b)\n\
            b: page allocation failure: order:0\n\
            Node 0 DMA present:4000kB\n\
            7 pages RAM\n";
        let all = parse(log);
        assert_eq!(all[0].present, [(0, 1000)]);
        assert_eq!((all[0].ram, &all[0].killed[..]), (0, &[4][..]));
    }

    #[test]
    fn what_comes_before_the_first_shortage_is_left_out() {
        let log = "98174 pages RAM\n\
            Out of memory: Killed process 3 (early)\n\
            a invoked oom-killer: gfp_mask=0x0, order=-1, oom_score_adj=0\n\
            Out of memory: Killed process 4 (b)\n\
            Out of memory: Killed process 4 (b)\n";
        let all = parse(log);
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].ram, &all[0].killed[..]), (0, &[4][..]));
        assert!(all[0].by_operator);
    }
}
