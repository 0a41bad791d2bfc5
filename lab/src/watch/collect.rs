//! Sorts the events and waits of a machine into bins as they happen.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use plimsoll_mm::Manager;
use plimsoll_mm::event::{Event, ReclaimedBy};
use plimsoll_mm::machine::{Job, Machine};
use plimsoll_mm::site::{LockClass, Site};
use plimsoll_mm::units::CpuId;
use plimsoll_sim::{Sim, Stats, Wait};

use super::bins::{BINS, Clock, Fold, Grid, Join, Series};
use super::course::{Course, Line, Map, Mark, Unit};
use super::encode;
use super::frames::{self, Kind, Tree};
use super::spans::Spans;
use super::waits::{Waits, length_ns};

/// The largest number of single events, such as kills, that a course (the data about one run)
/// keeps.
const MARKS_MAX: usize = 2000;

/// A kind of value that the collector records for each bin (interval of virtual time).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Fired,
    Kicked,
    Waits(LockClass),
    Moved(Site),
    Listed,
    Outside,
    RssError,
    RssTrue,
    Reclaimed(ReclaimedBy),
}

impl What {
    const fn fold(self) -> Fold {
        match self {
            Self::Listed | Self::Outside | Self::RssTrue => Fold::Last,
            Self::RssError => Fold::Extreme,
            _ => Fold::Sum,
        }
    }

    /// The name of the chart that shows the values of this kind, the name of the values in this
    /// chart, and their unit.
    fn names(self) -> (&'static str, String, Unit) {
        let own = str::to_owned;
        match self {
            Self::Fired => ("vmstat", own("vmstat work ran"), Unit::Count),
            Self::Kicked => ("vmstat", own("kicked by the shepherd"), Unit::Count),
            Self::Waits(class) => ("waits", own(class.name()), Unit::Count),
            Self::Moved(site) => ("moves", own(site.name()), Unit::Pages),
            Self::Listed => ("pages", own("on the lists of all CPUs"), Unit::Pages),
            Self::Outside => (
                "pages",
                own("taken from the zones since the start"),
                Unit::Pages,
            ),
            Self::RssError => ("rss", own("cheap sum minus true number"), Unit::Pages),
            Self::RssTrue => ("resident", own("resident pages"), Unit::Pages),
            Self::Reclaimed(ReclaimedBy::Kswapd) => ("reclaim", own("by kswapd"), Unit::Pages),
            Self::Reclaimed(ReclaimedBy::Direct) => {
                ("reclaim", own("by allocations themselves"), Unit::Pages)
            }
        }
    }
}

/// A kind of value that the collector has for each CPU and each bin (interval of virtual time).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PerCpu {
    Waited(LockClass),
    Blocked(LockClass),
    Fired,
    Listed,
}

impl PerCpu {
    const fn join(self) -> Join {
        match self {
            Self::Listed => Join::Max,
            _ => Join::Sum,
        }
    }

    fn names(self) -> (String, Unit) {
        match self {
            Self::Waited(class) => (format!("waited for {}", class.name()), Unit::Nanos),
            Self::Blocked(class) => (
                format!("let other CPUs wait for {}", class.name()),
                Unit::Nanos,
            ),
            Self::Fired => ("ran vmstat work".to_owned(), Unit::Count),
            Self::Listed => ("pages on the CPU's lists".to_owned(), Unit::Pages),
        }
    }
}

/// Everything that has been collected about one machine so far.
pub(super) struct Collector {
    cpus: u32,
    seed: u64,
    clock: Clock,
    events: u64,
    latest_ns: u64,
    lines: BTreeMap<What, Series>,
    maps: BTreeMap<PerCpu, Grid>,
    waits: Waits,
    spans: Spans,
    tree: Tree,
    marks: Vec<Mark>,
    /// The CPUs whose vmstat work the shepherd (`vmstat_shepherd`) has queued, if the work has not
    /// run yet.
    kicked: BTreeSet<CpuId>,
    /// How many pages CPUs have taken from the free lists of zones and not returned yet.
    outside: i64,
    /// The manager whose page lists are read, and the last bin (interval of virtual time) in which
    /// they were read.
    lists: Option<(Rc<Manager<Sim>>, Option<usize>)>,
    stats: Option<Stats>,
}

impl Collector {
    pub(super) fn new(sim: &Sim) -> Self {
        Self::of(sim.topology().cpus(), sim.seed())
    }

    fn of(cpus: u32, seed: u64) -> Self {
        Self {
            cpus,
            seed,
            clock: Clock::new(),
            events: 0,
            latest_ns: 0,
            lines: BTreeMap::new(),
            maps: BTreeMap::new(),
            waits: Waits::new(cpus),
            spans: Spans::default(),
            tree: Tree::default(),
            marks: Vec::new(),
            kicked: BTreeSet::new(),
            outside: 0,
            lists: None,
            stats: None,
        }
    }

    /// Forgets everything that has happened so far.
    pub(super) fn forget(&mut self, sim: &Sim) {
        let lists = self.lists.take().map(|(mm, _)| (mm, None));
        *self = Self {
            lists,
            ..Self::new(sim)
        };
    }

    /// The number of events and waits so far.
    pub(super) const fn events(&self) -> u64 {
        self.events
    }

    pub(super) fn read_lists(&mut self, mm: Rc<Manager<Sim>>) {
        self.lists = Some((mm, None));
    }

    pub(super) fn ended(&mut self, stats: &Stats) {
        self.stats = Some(stats.clone());
    }

    /// Makes the bins long enough that the time `at_ns` is in one of them, and returns the index of
    /// this bin.
    fn reach(&mut self, at_ns: u64) -> usize {
        self.latest_ns = self.latest_ns.max(at_ns);
        for _ in 0..self.clock.reach(at_ns) {
            self.lines.values_mut().for_each(Series::halve);
            self.maps.values_mut().for_each(Grid::halve);
            if let Some((_, Some(bin))) = &mut self.lists {
                *bin /= 2;
            }
        }
        self.clock.bin(at_ns)
    }

    fn add(&mut self, what: What, bin: usize, value: i64) {
        let series = self.lines.entry(what);
        series
            .or_insert_with(|| Series::new(what.fold()))
            .add(bin, value);
    }

    fn map(&mut self, of: PerCpu) -> &mut Grid {
        let cpus = self.cpus;
        let map = self.maps.entry(of);
        map.or_insert_with(|| Grid::new(cpus, of.join()))
    }

    pub(super) fn event(&mut self, sim: &Sim, cpu: CpuId, at_ns: u64, event: &Event) {
        match *event {
            Event::Refresh { .. } => self.fired(cpu, at_ns),
            Event::Kick { cpu } => {
                self.kicked.insert(cpu);
            }
            Event::ZoneHold { site, pages, .. } => self.moved(at_ns, site, pages.0.into()),
            Event::ShrinkInactive { by, reclaimed, .. } => {
                let bin = self.reach(at_ns);
                self.add(What::Reclaimed(by), bin, reclaimed.0.into());
            }
            Event::Begin(phase) => {
                self.reach(at_ns);
                let task = task_of(sim, cpu);
                self.spans.begin(task, cpu.0, at_ns, phase);
                self.tree.enter(task, at_ns, Kind::Phase(phase));
            }
            Event::End(phase) => {
                self.reach(at_ns);
                let task = task_of(sim, cpu);
                self.spans.end(task, at_ns, phase);
                self.tree.leave(task, at_ns, Kind::Phase(phase));
            }
            Event::OutOfMemory { .. } => self.mark("an allocation failed", cpu, at_ns),
            Event::OomKill(_) => self.mark("a process is killed", cpu, at_ns),
            Event::StartTaskReaping(_) => self.mark("the reaper starts", cpu, at_ns),
            Event::FinishTaskReaping(_) => self.mark("the reaper has finished", cpu, at_ns),
            Event::SkipTaskReaping(_) => self.mark("the reaper gives up", cpu, at_ns),
            Event::KswapdWake(_) => self.mark("kswapd wakes", cpu, at_ns),
            Event::KswapdSleep(_) => self.mark("kswapd sleeps", cpu, at_ns),
            // Ignore all other events. There are too many events about single pages, and the rest
            // are steps of something that a chart already shows.
            _ => return,
        }
        self.events += 1;
        self.read(sim, at_ns);
    }

    fn fired(&mut self, cpu: CpuId, at_ns: u64) {
        let bin = self.reach(at_ns);
        self.add(What::Fired, bin, 1);
        if self.kicked.remove(&cpu) {
            self.add(What::Kicked, bin, 1);
        }
        self.map(PerCpu::Fired).add(cpu.0, bin, 1);
    }

    fn moved(&mut self, at_ns: u64, site: Site, pages: i64) {
        let taken = match site {
            Site::Refill | Site::AllocDirect => pages,
            Site::Spill | Site::Decay | Site::Drain | Site::DrainRemoteNode | Site::FreeDirect => {
                -pages
            }
            _ => return,
        };
        let bin = self.reach(at_ns);
        self.add(What::Moved(site), bin, pages);
        self.outside += taken;
        self.add(What::Outside, bin, self.outside);
    }

    fn mark(&mut self, what: &str, cpu: CpuId, at_ns: u64) {
        self.reach(at_ns);
        if self.marks.len() < MARKS_MAX {
            self.marks.push(Mark {
                what: what.to_owned(),
                at_ns,
                cpu: cpu.0,
            });
        }
    }

    /// Reads the lengths of all page lists, unless they have already been read in this bin of time.
    fn read(&mut self, sim: &Sim, at_ns: u64) {
        let bin = self.clock.bin(at_ns);
        let Some((mm, last)) = &mut self.lists else {
            return;
        };
        // A CPU can emit an event while the clocks of other CPUs are earlier. So `at_ns` may be a
        // little earlier than in the previous call.
        if last.is_some_and(|last| bin <= last) {
            return;
        }
        *last = Some(bin);
        let mm = Rc::clone(mm);
        let mut sum = 0;
        for cpu in sim.topology().ids() {
            let pages = mm.pages().listed(sim, cpu).0;
            sum += i64::from(pages);
            if pages > 0 {
                self.map(PerCpu::Listed).add(cpu.0, bin, pages.into());
            }
        }
        self.add(What::Listed, bin, sum);
    }

    pub(super) fn counted(&mut self, sim: &Sim, said: i64, truth: i64) {
        let bin = self.reach(sim.now().0);
        self.events += 1;
        self.add(What::RssError, bin, said - truth);
        self.add(What::RssTrue, bin, truth);
    }

    pub(super) fn waited(&mut self, wait: &Wait) {
        self.events += 1;
        self.reach(wait.until.0);
        let bin = self.clock.bin(wait.from.0);
        self.add(What::Waits(wait.class), bin, 1);
        let (clock, from_ns, until_ns) = (self.clock, wait.from.0, wait.until.0);
        self.map(PerCpu::Waited(wait.class))
            .add_time(clock, wait.cpu.0, from_ns, until_ns);
        self.map(PerCpu::Blocked(wait.class))
            .add_time(clock, wait.blocker.0, from_ns, until_ns);
        self.waits.add(wait);
        let sites = [wait.site, wait.blocker_site];
        self.tree
            .wait(wait.task, wait.class, sites, length_ns(wait));
    }

    pub(super) fn job_starts(&mut self, sim: &Sim, job: Job) {
        let (task, now) = (task_of(sim, sim.this_cpu()), sim.now().0);
        self.tree.enter(task, now, Kind::job(job));
    }

    pub(super) fn job_ends(&mut self, sim: &Sim, job: Job) {
        let (task, now) = (task_of(sim, sim.this_cpu()), sim.now().0);
        self.tree.leave(task, now, Kind::job(job));
    }

    /// Returns the course of the run: what happened in it, over time. The caller adds the names of
    /// the experiment, the machine and the design.
    pub(super) fn finish(mut self) -> Course {
        let ended = self.stats.as_ref().map_or(0, |stats| stats.now.0);
        let length_ns = self.latest_ns.max(ended);
        self.reach(length_ns);
        let bins = self.clock.bin(length_ns) + 1;
        let time = self.stats.as_ref();
        let time = time.map(|stats| frames::time(stats, &self.waits));
        let map = |(of, grid): (&PerCpu, &Grid)| -> Map {
            let (name, unit) = of.names();
            encode::map(grid, name, unit, bins)
        };
        Course {
            seed: self.seed,
            cpus: self.cpus,
            length_ns,
            bin_ns: self.clock.bin_ns,
            bins,
            maps: self.maps.iter().map(map).collect(),
            lines: self.lines.iter().map(|of| line(of, bins)).collect(),
            waits: self.waits.sites(),
            pairs: self.waits.pairs(),
            longest: self.waits.longest(),
            between: self.waits.between(),
            spans: self.spans.finish(length_ns),
            marks: self.marks,
            time: time.unwrap_or_default(),
            phases: self.tree.finish(),
            ..Course::default()
        }
    }
}

/// The task that runs on the current CPU. If the CPU is idle, returns a number that no task has.
fn task_of(sim: &Sim, cpu: CpuId) -> u32 {
    sim.this_task().unwrap_or(u32::MAX - cpu.0)
}

fn line((what, series): (&What, &Series), bins: usize) -> Line {
    let (chart, name, unit) = what.names();
    let values = series.values[..bins.min(BINS)].iter();
    let values = values.map(|value| match what.fold() {
        // A bin without events has the sum 0.
        Fold::Sum => Some(value.unwrap_or(0)),
        Fold::Last | Fold::Extreme => *value,
    });
    Line {
        chart: chart.to_owned(),
        name,
        unit,
        values: values.collect(),
    }
}
