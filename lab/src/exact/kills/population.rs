//! The processes of a recorded machine before its memory ran out. A load program started these
//! processes, read their figures from `/proc` and wrote them down in this form:
//!
//! ```text
//! total ram_kib=308344 swap_kib=0
//! group /web together
//! process pid=171 kind=process adj=0 score=713 rss=5430 swap_kib=0 pte_kib=84 nodes=0 group=/web
//! ```
//!
//! `rss` is field 24 of `/proc/PID/stat`, the approximate reading. `swap_kib` and `pte_kib` are
//! `VmSwap` and `VmPTE` of `/proc/PID/status`, and `nodes` is `Mems_allowed_list` of the same file.
//! The parser ignores unknown words, so that later versions can add words. Three words are
//! optional:
//!
//! - `policy=0-1` names the nodes to which a memory policy binds the process (`MPOL_BIND`).
//! - `shares=PID` names another process whose memory this process uses.
//! - `vfork` says that this process uses its parent's memory only until it calls `exec`.

use plimsoll_mm::oom::Kind;
use plimsoll_recording::Recording;

use super::log::list;

/// The name of the text in the recording's header that lists these processes.
pub(crate) const TEXT: &str = "oom population";

/// The processes of the recorded machine before its memory ran out, and the size of the machine's
/// memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Population {
    /// The machine's memory and swap together, in pages.
    pub(super) total: u64,
    /// The machine's swap, in pages.
    pub(super) swap: u64,
    /// The paths of the memory cgroups whose members die together (`memory.oom.group`).
    pub(super) together: Vec<String>,
    pub(super) members: Vec<Member>,
}

/// One process, with its figures in `/proc` before memory ran out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) pid: u32,
    pub(super) kind: Kind,
    pub(super) adj: i32,
    /// The score that the kernel shows in `/proc/PID/oom_score`.
    pub(super) score: u64,
    pub(super) rss_pages: u64,
    pub(super) swap_kib: u64,
    pub(super) table_kib: u64,
    /// The nodes that the process's cpuset allows.
    pub(super) nodes: Vec<u32>,
    /// The nodes to which a memory policy binds the process. `None` without such a policy.
    pub(super) policy: Option<Vec<u32>>,
    /// The path of the process's memory cgroup.
    pub(super) group: String,
    /// The id of another process whose memory this process uses. `None` if this process has its own
    /// memory.
    pub(super) shares: Option<u32>,
    /// True if the process uses its parent's memory until it calls `exec`.
    pub(super) vfork: bool,
}

impl Population {
    /// Reads the processes from a recording. Also returns the number of unreadable lines. Returns
    /// `None` if the recording has no list of processes.
    pub(super) fn of(recording: &Recording) -> Option<(Self, usize)> {
        recording.header.text(TEXT).map(Self::parse)
    }

    fn parse(text: &str) -> (Self, usize) {
        let (mut all, mut unreadable) = (Self::default(), 0);
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let (kind, rest) = line.trim().split_once(' ').unwrap_or((line, ""));
            let read = match kind {
                "total" => all.read_total(rest),
                "group" => {
                    let path = rest.strip_suffix(" together");
                    all.together.extend(path.map(str::to_owned));
                    Some(())
                }
                "process" => Member::read(rest).map(|member| all.members.push(member)),
                _ => None,
            };
            unreadable += usize::from(read.is_none());
        }
        (all, unreadable)
    }

    fn read_total(&mut self, rest: &str) -> Option<()> {
        let kib = |name| word(rest, name)?.parse::<u64>().ok();
        self.swap = kib("swap_kib")? / 4;
        self.total = kib("ram_kib")? / 4 + self.swap;
        Some(())
    }

    /// The process with the id `pid`. `None` if the recording has no such process.
    pub(super) fn member(&self, pid: u32) -> Option<&Member> {
        self.members.iter().find(|member| member.pid == pid)
    }
}

impl Member {
    fn read(rest: &str) -> Option<Self> {
        let number = |name| word(rest, name)?.parse::<u64>().ok();
        Some(Self {
            pid: word(rest, "pid")?.parse().ok()?,
            kind: match word(rest, "kind")? {
                "process" => Kind::Process,
                "init" => Kind::Init,
                "kernel" => Kind::KernelThread,
                _ => return None,
            },
            adj: word(rest, "adj")?.parse().ok()?,
            score: number("score")?,
            rss_pages: number("rss")?,
            swap_kib: number("swap_kib")?,
            table_kib: number("pte_kib")?,
            nodes: list(word(rest, "nodes")?),
            policy: word(rest, "policy").map(list),
            group: word(rest, "group")?.to_owned(),
            shares: word(rest, "shares").and_then(|pid| pid.parse().ok()),
            vfork: rest.split(' ').any(|word| word == "vfork"),
        })
    }
}

fn word<'t>(line: &'t str, name: &str) -> Option<&'t str> {
    let mut words = line.split(' ').filter_map(|word| word.split_once('='));
    words.find_map(|(known, value)| (known == name).then_some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "process pid=7 kind=process adj=-5 score=66 rss=10 swap_kib=8 pte_kib=40 nodes=0-1 group=/a";

    #[test]
    fn a_process_is_read_with_what_may_be_left_out() {
        let text = format!(
            "total ram_kib=4000 swap_kib=400\ngroup /a together\n{LINE}\n{LINE} policy=1 shares=3 vfork\n"
        );
        let (population, unreadable) = Population::parse(&text);
        assert_eq!(unreadable, 0);
        assert_eq!((population.total, population.swap), (1100, 100));
        assert_eq!(population.together, ["/a"]);
        let [alone, other] = &population.members[..] else {
            panic!("two: {population:?}");
        };
        assert_eq!((alone.adj, &alone.nodes[..]), (-5, &[0, 1][..]));
        assert_eq!((alone.shares, alone.vfork), (None, false));
        assert_eq!((other.shares, other.vfork), (Some(3), true));
        assert_eq!((&alone.policy, &other.policy), (&None, &Some(vec![1])));
    }

    #[test]
    fn lines_that_cannot_be_read_are_counted() {
        let broken = LINE.replace("adj=-5", "adj=few");
        let text = format!("hello\n\n{broken}\ntotal ram_kib=1\n{LINE}\n");
        let (population, unreadable) = Population::parse(&text);
        assert_eq!((population.members.len(), unreadable), (1, 3));
    }
}
