//! Repeats a recorded shortage: the selection among the recorded processes, and the kill of the
//! victim. The kill also includes all processes that die together with the victim.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_host::Host;
use plimsoll_mm::Manager;
use plimsoll_mm::counter::Reading;
use plimsoll_mm::design::Design;
use plimsoll_mm::event::Event;
use plimsoll_mm::oom::{
    Candidates, Constraint, Facts, GroupId, Kind, Memory as Whose, OomKiller, Outcome, Patience,
    Process, Scope, ScoreAdj, Selecting, Slot, Standing, State, TotalPages, Trigger, Usage, Victim,
};
use plimsoll_mm::page::{Config, Layout};
use plimsoll_mm::space::budget::Budget;
use plimsoll_mm::space::{AddressSpace, Memory, Spaces};
use plimsoll_mm::topology::{NodeSet, Topology};
use plimsoll_mm::units::{NodeId, Pages, ProcessId};

use super::log::{Place, Shortage, Task};
use super::population::{Member, Population};

/// The size, in pages, of the memory that Plimsoll manages while it repeats the kills. The kills do
/// not allocate any of these pages.
const ARENA: Pages = Pages(4096);
/// The group that stands for all processes outside the memory cgroup that ran out of memory.
const OUTSIDE: GroupId = GroupId(0);
/// The group that stands for the memory cgroup that ran out of memory.
const INSIDE: GroupId = GroupId(1);

/// A recorded shortage, whose processes are the candidates of Plimsoll's selection.
pub(super) struct Recorded<'r> {
    shortage: &'r Shortage,
    population: &'r Population,
    /// The ids of the processes that earlier shortages killed. If the kernel's table still lists
    /// such a process, the reaper has already emptied its memory or has given up. Otherwise the
    /// kernel would not have chosen another process.
    spent: &'r [u32],
}

impl<'r> Recorded<'r> {
    pub(super) const fn new(
        shortage: &'r Shortage,
        population: &'r Population,
        spent: &'r [u32],
    ) -> Self {
        Self {
            shortage,
            population,
            spent,
        }
    }

    /// The ids of the processes that Plimsoll marks as victims, in order. Empty if no process can
    /// be killed.
    pub(super) fn victims(&self, selecting: Selecting) -> Vec<u32> {
        let Some(scope) = self.scope() else {
            return Vec::new();
        };
        let chosen = self
            .asking(&scope)
            .or_else(|| self.select(selecting, &scope));
        chosen.map_or_else(Vec::new, |chosen| self.kill(chosen))
    }

    /// The points (Linux: `oom_badness`) of a process in the kernel's table. `None` if the process
    /// must not be killed.
    pub(super) fn points(&self, task: &Task) -> Option<i64> {
        let facts = self.facts_of(task)?;
        let total = self.scope()?.total;
        plimsoll_mm::oom::badness(&facts, pages(task), total)
    }

    fn scope(&self) -> Option<Scope> {
        let shortage = self.shortage;
        let present = |nodes: &[u32]| -> u64 {
            let on = shortage
                .present
                .iter()
                .filter(|(node, _)| nodes.contains(node));
            on.map(|(_, pages)| pages).sum()
        };
        let (constraint, total) = match &shortage.place {
            Place::Machine => {
                let ram = shortage.ram.checked_sub(shortage.reserved)?;
                (Constraint::Machine, ram + shortage.swap)
            }
            Place::Nodes(nodes) | Place::Policy(nodes) => (
                Constraint::Nodes(node_set(nodes)),
                present(nodes) + shortage.swap,
            ),
            Place::Group(_) => {
                // The log of a memory cgroup's shortage does not state the size of swap.
                let swap = shortage.swap_limit.unwrap_or(0).min(self.population.swap);
                (Constraint::Group(INSIDE), shortage.limit? + swap)
            }
        };
        Some(Scope {
            total: TotalPages::new(total).ok()?,
            constraint,
            trigger: if shortage.by_operator {
                Trigger::Operator
            } else {
                Trigger::Shortage
            },
        })
    }

    /// The row of the allocating process in the kernel's table, if the kernel kills that process
    /// without a selection (`vm.oom_kill_allocating_task`).
    fn asking(&self, scope: &Scope) -> Option<u32> {
        let asked_by = self
            .shortage
            .asked_by
            .filter(|_| self.shortage.kills_who_asks)?;
        let row = self
            .shortage
            .tasks
            .iter()
            .position(|task| task.pid == asked_by)?;
        let row = u32::try_from(row).ok()?;
        let standing = Standing::of(self, scope, &self.facts(row)?);
        matches!(standing, Standing::Counted(_)).then_some(row)
    }

    fn select(&self, selecting: Selecting, scope: &Scope) -> Option<u32> {
        let mut slots = vec![Slot::EMPTY; self.shortage.tasks.len().max(1)];
        let selection = selecting.select(self, scope, &mut slots).ok()?;
        match selection.outcome {
            Outcome::Victim(Victim { candidate, .. }) => Some(candidate),
            Outcome::Nobody(_) => None,
        }
    }

    /// Kills the process in row `row` of the table, and returns the ids of all processes that are
    /// marked as victims. To do so, makes a process without pages for each row of the table.
    fn kill(&self, row: u32) -> Vec<u32> {
        let marked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&marked);
        let host = Host::with_observer(Topology::flat(1), move |_cpu, _at, event| {
            if let Event::MarkVictim(process) = event {
                seen.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(process.0);
            }
        });
        self.kill_on(&host, row);
        let marked = marked.lock().unwrap_or_else(PoisonError::into_inner);
        marked.clone()
    }

    fn kill_on(&self, host: &Host, row: u32) {
        let manager = Manager::new(host, Config::new(Layout::arena(ARENA)));
        let manager = manager.expect("one zone of a fixed size is a layout");
        let spaces = Spaces::new(host, &Design::LINUX, 0);
        let spaces = spaces.expect("a machine without swap needs no more than a heap");
        let memory = Memory::new(host, &manager, &spaces);
        let killer = OomKiller::new(host, (), Patience::LINUX);
        let mut budgets = Budgets::new(host, &self.population.together);
        let all = self.enroll(memory, &killer, &mut budgets);
        let domain = match &self.shortage.place {
            Place::Group(path) => Some(budgets.of(path)),
            _ => None,
        };
        if let Some(victim) = all.get(row as usize) {
            killer.kill(memory, victim, &all.iter(), domain.as_ref());
        }
    }

    fn enroll(
        &self,
        memory: Memory<'_, Host>,
        killer: &OomKiller<Host, ()>,
        budgets: &mut Budgets<'_>,
    ) -> Vec<Arc<Process<Host>>> {
        let mut spaces: BTreeMap<u32, Arc<AddressSpace<Host>>> = BTreeMap::new();
        let tasks = self.shortage.tasks.iter();
        let all = tasks.map(|task| {
            let member = self.population.member(task.pid);
            let owner = member.and_then(|member| member.shares).unwrap_or(task.pid);
            let space = spaces.entry(owner).or_insert_with(|| {
                let group = member.map_or("/", |member| member.group.as_str());
                let space = AddressSpace::new(memory).expect("it has no pages yet");
                Arc::new(space.limited(budgets.of(group)))
            });
            let space = Some(Arc::clone(space));
            let process = killer.enroll(memory.machine, ProcessId(task.pid), Kind::Process, space);
            let process = Arc::new(process.expect("a row of a table is small"));
            if let Ok(adj) = ScoreAdj::new(task.adj) {
                process.set_adj(adj);
            }
            if member.is_some_and(|member| member.vfork) {
                process.set(memory.machine, State::Vfork);
            }
            process
        });
        all.collect()
    }

    fn facts_of(&self, task: &Task) -> Option<Facts> {
        let member = self.population.member(task.pid);
        let inside = matches!(self.shortage.place, Place::Group(_));
        Some(Facts {
            memory: match member {
                _ if self.spent.contains(&task.pid) => Whose::Reaped,
                Some(member) if member.vfork => Whose::Parents,
                _ => Whose::Own,
            },
            adj: ScoreAdj::new(task.adj).ok()?,
            is_victim: self.spent.contains(&task.pid),
            nodes: member.map_or(NodeSet::ALL, |member| self.nodes_of(member)),
            // If a memory cgroup ran out of memory, the kernel's table lists only the members of
            // this cgroup.
            group: if inside { INSIDE } else { OUTSIDE },
            ..Facts::PROCESS
        })
    }

    /// The nodes on which the kernel assumes the memory of `member` to be when it selects a victim.
    /// If the nodes of a memory policy are short of memory, these are the nodes of the member's
    /// policy. Otherwise they are the nodes of the member's cpuset.
    fn nodes_of(&self, member: &Member) -> NodeSet {
        match (&self.shortage.place, &member.policy) {
            (Place::Policy(_), None) => NodeSet::ALL,
            (Place::Policy(_), Some(policy)) => node_set(policy),
            _ => node_set(&member.nodes),
        }
    }

    fn task(&self, candidate: u32) -> Option<&Task> {
        self.shortage.tasks.get(candidate as usize)
    }
}

impl Candidates for Recorded<'_> {
    fn len(&self) -> u32 {
        u32::try_from(self.shortage.tasks.len()).unwrap_or(u32::MAX)
    }

    fn facts(&self, candidate: u32) -> Option<Facts> {
        self.facts_of(self.task(candidate)?)
    }

    fn approximate(&self, candidate: u32) -> Option<Reading> {
        self.precise(candidate).map(Reading::exactly)
    }

    /// Returns how many pages killing the candidate would free, computed from the kernel's table.
    /// The kernel chose by the numbers in this table, so the replay uses them both as approximate
    /// and as precise sums.
    fn precise(&self, candidate: u32) -> Option<i64> {
        self.task(candidate).map(pages)
    }
}

/// The number of pages that a kill of the process would free.
fn pages(task: &Task) -> i64 {
    let usage = Usage {
        resident_pages: task.resident,
        swap_pages: task.swap,
        table_bytes: task.table_bytes,
    };
    usage.pages()
}

fn node_set(nodes: &[u32]) -> NodeSet {
    nodes.iter().fold(NodeSet::NONE, |set, &node| {
        set.with(NodeId(node)).unwrap_or(set)
    })
}

/// The budgets that stand for memory cgroups, by the path of the cgroup. A budget is Plimsoll's
/// limit on the pages of a group of processes.
struct Budgets<'h> {
    host: &'h Host,
    together: &'h [String],
    known: BTreeMap<String, Arc<Budget<Host>>>,
}

impl<'h> Budgets<'h> {
    const fn new(host: &'h Host, together: &'h [String]) -> Self {
        let known = BTreeMap::new();
        Self {
            host,
            together,
            known,
        }
    }

    /// Returns the budget (limit on pages) that stands for the cgroup at `path`. Budgets are nested
    /// as the cgroups are.
    fn of(&mut self, path: &str) -> Arc<Budget<Host>> {
        if let Some(known) = self.known.get(path) {
            return Arc::clone(known);
        }
        let budget = match path.rsplit_once('/') {
            Some((above, name)) if !name.is_empty() => {
                let above = self.of(if above.is_empty() { "/" } else { above });
                Budget::under(self.host, u64::MAX, above)
            }
            _ => Budget::new(self.host, u64::MAX),
        };
        let budget = if self.together.iter().any(|group| group == path) {
            budget.killed_together()
        } else {
            budget
        };
        let budget = Arc::new(budget);
        self.known.insert(path.to_owned(), Arc::clone(&budget));
        budget
    }
}
