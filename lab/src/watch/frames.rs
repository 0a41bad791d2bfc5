//! Divides the time of a run among the frames (parts of the time) of two trees: one by kind of
//! work, and one by the phases of tasks.

use std::collections::BTreeMap;

use plimsoll_mm::event::Phase;
use plimsoll_mm::machine::Job;
use plimsoll_mm::site::{LockClass, Site, Work};
use plimsoll_sim::Stats;
use plimsoll_sim::profile::Disturbance;

use super::course::Frame;
use super::waits::Waits;

/// The meaning of a frame (a part of the time of a run).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Phase(Phase),
    Vmstat,
    Shepherd,
    /// The waits for locks that were requested at this call site, outside every phase and kernel
    /// job.
    Caller(Site),
    /// The waits of code that requested the lock at this call site.
    Wait(LockClass, Site),
    /// The waits for a holder that had taken the lock at this call site.
    Holder(Site),
}

impl Kind {
    pub(super) const fn job(job: Job) -> Self {
        match job {
            Job::VmstatUpdate => Self::Vmstat,
            Job::Shepherd => Self::Shepherd,
        }
    }

    fn name(self) -> String {
        match self {
            Self::Phase(phase) => phase.name().to_owned(),
            Self::Vmstat => "vmstat_update".to_owned(),
            Self::Shepherd => "vmstat_shepherd".to_owned(),
            Self::Caller(site) => site.name().to_owned(),
            Self::Wait(class, site) => format!("wait for {} in {}", class.name(), site.name()),
            Self::Holder(site) => format!("held in {}", site.name()),
        }
    }
}

/// A tree of frames (parts of the time), which tasks enter and leave.
#[derive(Default)]
pub(super) struct Tree {
    nodes: Vec<Node>,
    /// For each parent node and each kind of frame (a part of the time), the parent's child of this
    /// kind. The parent `None` stands for the root of the tree.
    places: BTreeMap<(Option<usize>, Kind), usize>,
    /// For each task, the frames (parts of the time) that the task has entered and not left yet,
    /// each with the time of entering.
    open: BTreeMap<u32, Vec<(usize, u64)>>,
}

#[derive(Clone, Copy)]
struct Node {
    parent: Option<usize>,
    kind: Kind,
    count: u64,
    ns: u64,
}

impl Tree {
    fn node(&mut self, parent: Option<usize>, kind: Kind) -> usize {
        *self.places.entry((parent, kind)).or_insert_with(|| {
            self.nodes.push(Node {
                parent,
                kind,
                count: 0,
                ns: 0,
            });
            self.nodes.len() - 1
        })
    }

    pub(super) fn enter(&mut self, task: u32, at_ns: u64, kind: Kind) {
        let top = self.open.get(&task).and_then(|open| open.last());
        let parent = top.map(|(node, _)| *node);
        let node = self.node(parent, kind);
        self.open.entry(task).or_default().push((node, at_ns));
    }

    pub(super) fn leave(&mut self, task: u32, at_ns: u64, kind: Kind) {
        let open = self.open.entry(task).or_default();
        let is_it = |open: &mut (usize, u64)| self.nodes[open.0].kind == kind;
        // If the task entered the frame before the run was watched, the time of entering is not
        // known, and the frame is ignored.
        if let Some((node, since_ns)) = open.pop_if(is_it) {
            self.nodes[node].count += 1;
            self.nodes[node].ns += at_ns - since_ns;
        }
    }

    /// Adds a wait of `ns` nanoseconds to the frame (a part of the run's time) that `task` entered
    /// last.
    pub(super) fn wait(&mut self, task: u32, class: LockClass, sites: [Site; 2], ns: u64) {
        let [site, holder] = sites;
        let top = self.open.get(&task).and_then(|open| open.last());
        let inside = top.map(|(node, _)| *node);
        let kinds = [Kind::Wait(class, site), Kind::Holder(holder)];
        let mut parent = inside;
        for kind in inside
            .is_none()
            .then_some(Kind::Caller(site))
            .into_iter()
            .chain(kinds)
        {
            let node = self.node(parent, kind);
            self.nodes[node].count += 1;
            self.nodes[node].ns += ns;
            parent = Some(node);
        }
    }

    /// Returns the frames (parts of the time), or an empty list if no task has been in a phase or a
    /// job. A frame that has not ended may have less time than its children. Such a frame gets the
    /// time of its children.
    pub(super) fn finish(mut self) -> Vec<Frame> {
        let told =
            |node: &Node| matches!(node.kind, Kind::Phase(_) | Kind::Vmstat | Kind::Shepherd);
        if !self.nodes.iter().any(told) {
            return Vec::new();
        }
        let mut inside = vec![0; self.nodes.len()];
        // The loop goes backwards, because children come after their parents.
        for nth in (0..self.nodes.len()).rev() {
            self.nodes[nth].ns = self.nodes[nth].ns.max(inside[nth]);
            if let Some(parent) = self.nodes[nth].parent {
                inside[parent] += self.nodes[nth].ns;
            }
        }
        let mut frames = Vec::new();
        self.push(None, 0, &mut frames);
        frames
    }

    fn push(&self, parent: Option<usize>, depth: u32, frames: &mut Vec<Frame>) {
        let mut children: Vec<&usize> = self
            .places
            .iter()
            .filter(|((of, _), _)| *of == parent)
            .map(|(_, node)| node)
            .collect();
        children.sort_by_key(|nth| std::cmp::Reverse(self.nodes[**nth].ns));
        for &nth in children {
            let Node {
                kind, count, ns, ..
            } = self.nodes[nth];
            if ns > 0 {
                let name = kind.name();
                frames.push(Frame {
                    depth,
                    name,
                    count,
                    ns,
                });
                self.push(Some(nth), depth + 1, frames);
            }
        }
    }
}

/// The kinds of work, in groups.
const GROUPS: [(&str, &[Work]); 8] = [
    ("the program's own work", &[Work::Think]),
    (
        "page faults",
        &[Work::Fault, Work::MinorFault, Work::SwapIn],
    ),
    ("page lists of CPUs", &[Work::PcpAlloc, Work::PcpFree]),
    ("zones", &[Work::BuddyAlloc, Work::BuddyFree]),
    (
        "unmapping and exit",
        &[
            Work::Zap,
            Work::Rmap,
            Work::LruRemove,
            Work::Release,
            Work::WalkTable,
            Work::TlbFlush,
            Work::SwapFree,
            Work::MapEdit,
            Work::ForgetMapping,
        ],
    ),
    (
        "statistics",
        &[
            Work::RefreshZone,
            Work::ScanCpu,
            Work::NextCpu,
            Work::StreamCpu,
            Work::Count,
        ],
    ),
    (
        "tasks and interrupts",
        &[
            Work::ContextSwitch,
            Work::Interrupt,
            Work::Ipi,
            Work::Process,
            Work::Clock,
        ],
    ),
    (
        "reclaim and choosing victims",
        &[
            Work::Candidate,
            Work::Compare,
            Work::LruMove,
            Work::Reference,
            Work::SwapOut,
        ],
    ),
];

/// Divides the time of all CPUs by kind of work, spinning waits, and disturbances such as
/// interrupts. The time in which CPUs are idle or wait for a cache line is in no frame.
pub(super) fn time(stats: &Stats, waits: &Waits) -> Vec<Frame> {
    let leaf = |depth: u32, name: &str, count: u64, ns: u64| Frame {
        depth,
        name: name.to_owned(),
        count,
        ns,
    };
    let work = GROUPS.iter().map(|(name, kinds)| {
        let kinds = kinds.iter().map(|kind| {
            let ns = stats.work_ns[*kind as usize];
            vec![leaf(1, kind.name(), 0, ns)]
        });
        above(0, name, kinds.collect())
    });
    let mut sites: BTreeMap<(LockClass, Site), Vec<Vec<Frame>>> = BTreeMap::new();
    for (class, site, holder, count, ns) in waits.spinning() {
        let held = leaf(3, &Kind::Holder(holder).name(), count, ns);
        sites.entry((class, site)).or_default().push(vec![held]);
    }
    let mut classes: BTreeMap<LockClass, Vec<Vec<Frame>>> = BTreeMap::new();
    for ((class, site), holders) in sites {
        let of_site = above(2, site.name(), holders);
        classes.entry(class).or_default().push(of_site);
    }
    let classes = classes
        .into_iter()
        .map(|(class, sites)| above(1, class.name(), sites));
    let spinning = above(0, "spinning for locks", classes.collect());
    let disturbed = Disturbance::ALL.map(|kind| {
        let count = stats.disturbances[kind as usize];
        vec![leaf(
            1,
            kind.name(),
            count,
            stats.disturbed_ns[kind as usize],
        )]
    });
    let disturbed = above(0, "disturbances", disturbed.into());
    let mut roots: Vec<Vec<Frame>> = work.chain([spinning, disturbed]).collect();
    largest_first(&mut roots);
    roots.concat()
}

/// Makes a frame that encloses `parts`. Each part is a frame with its children. Parts without time
/// are left out.
fn above(depth: u32, name: &str, mut parts: Vec<Vec<Frame>>) -> Vec<Frame> {
    largest_first(&mut parts);
    let sum = |value: fn(&Frame) -> u64| parts.iter().map(|part| value(&part[0])).sum();
    let frame = Frame {
        depth,
        name: name.to_owned(),
        count: sum(|frame| frame.count),
        ns: sum(|frame| frame.ns),
    };
    std::iter::once(frame).chain(parts.concat()).collect()
}

fn largest_first(parts: &mut Vec<Vec<Frame>>) {
    parts.retain(|part| part.first().is_some_and(|frame| frame.ns > 0));
    parts.sort_by_key(|part| std::cmp::Reverse(part[0].ns));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_work_is_in_one_group() {
        let mut grouped: Vec<Work> = GROUPS.iter().flat_map(|group| group.1).copied().collect();
        grouped.sort_unstable();
        let mut all = Work::ALL;
        all.sort_unstable();
        assert_eq!(grouped, all);
    }

    #[test]
    fn waits_are_in_the_phase_of_their_task() {
        let mut tree = Tree::default();
        let exit = Kind::Phase(Phase::Exit);
        tree.leave(5, 3, exit);
        tree.enter(5, 10, exit);
        tree.wait(5, LockClass::Zone, [Site::Spill, Site::Refill], 4);
        tree.wait(6, LockClass::Zone, [Site::Refill, Site::Spill], 7);
        tree.enter(5, 20, Kind::Phase(Phase::Unmap));
        tree.leave(5, 25, Kind::Phase(Phase::Unmap));
        tree.leave(5, 40, exit);
        let shown: Vec<_> = tree
            .finish()
            .into_iter()
            .map(|frame| (frame.depth, frame.name, frame.count, frame.ns))
            .collect();
        let want = [
            (0, "exit_mmap", 1, 30),
            (1, "unmap_page_range", 1, 5),
            (1, "wait for zone->lock in free_frozen_page_commit", 1, 4),
            (2, "held in rmqueue_bulk", 1, 4),
            (0, "rmqueue_bulk", 1, 7),
            (1, "wait for zone->lock in rmqueue_bulk", 1, 7),
            (2, "held in free_frozen_page_commit", 1, 7),
        ];
        let want = want.map(|(depth, name, count, ns)| (depth, name.to_owned(), count, ns));
        assert_eq!(shown, want);
    }

    #[test]
    fn waits_alone_are_no_tree_of_phases() {
        let mut tree = Tree::default();
        tree.wait(6, LockClass::Zone, [Site::Refill, Site::Spill], 7);
        assert!(tree.finish().is_empty());
    }
}
