//! Builds a pool from its settings: memory, CPUs, design, knobs, counters and threads.

use std::sync::Arc;

use plimsoll_mm::Manager;
use plimsoll_mm::counter::{CounterSpec, NamedCounters};
use plimsoll_mm::design::Design;
use plimsoll_mm::event::Event;
use plimsoll_mm::page::{
    Config, Grouping, LastResort, Layout, NODES_MAX, Pressure, Reclaimer, ZoneKind, ZoneLayout,
};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::tunables::Knob;
use plimsoll_mm::units::{CpuId, Nanos, NodeId, Order, Pages, Pfn};

use super::{BuildError, Pool, Shared};
use crate::Host;
use crate::arena::{Arena, HugePages};
use crate::topology;

/// The number of pages of a pool unless [`Builder::pages`] sets another number. The default is 64
/// MiB.
pub const PAGES_DEFAULT: Pages = Pages(1 << 14);

/// The largest number of CPUs of a pool.
pub const CPUS_MAX: u32 = topology::CPUS_MAX;

type Observer = Box<dyn Fn(CpuId, Nanos, Event) + Send + Sync>;

/// The threads that do the periodic work of a pool's manager.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Upkeep {
    /// The pool starts one worker thread per CPU, and the shepherd, the job that restarts the
    /// periodic work of CPUs where it has stopped.
    #[default]
    Threads,
    /// The pool starts no threads. The embedder calls [`Host::start`] and [`Manager::start`], or
    /// does without periodic work. Without periodic work, counts stay on the CPUs and are not added
    /// to the shared counters, and page lists that are no longer used keep their pages.
    ByEmbedder,
}

/// The CPUs of a pool. The number of CPUs is checked before anything is allocated for them.
enum Cpus {
    Described(Topology),
    /// This many CPUs, which are equal and on one node.
    Equal(u32),
}

impl Cpus {
    fn topology(self) -> Result<Topology, BuildError> {
        match self {
            Self::Described(topology) => Ok(topology),
            Self::Equal(0) => Err(BuildError::NoCpu),
            Self::Equal(cpus @ 1..=CPUS_MAX) => Ok(Topology::flat(cpus)),
            Self::Equal(cpus) => Err(BuildError::TooManyCpus { cpus }),
        }
    }
}

/// Collects the settings of a [`Pool`]. Each method says which value applies if it is not called.
pub struct Builder {
    host: Option<Host>,
    cpus: Option<Cpus>,
    observer: Option<Observer>,
    pages: Pages,
    nodes: u32,
    layout: Option<Layout>,
    huge: HugePages,
    populate: bool,
    /// All settings that no other field holds. [`Builder::build`] replaces the layout in this
    /// field.
    config: Config<Host>,
    knobs: Vec<(Knob, u64)>,
    counters: Vec<CounterSpec>,
    upkeep: Upkeep,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            host: None,
            cpus: None,
            observer: None,
            pages: PAGES_DEFAULT,
            nodes: 1,
            layout: None,
            huge: HugePages::AsSystem,
            populate: false,
            config: Config::new(Layout::of([])),
            knobs: Vec::new(),
            counters: Vec::new(),
            upkeep: Upkeep::Threads,
        }
    }
}

impl Builder {
    /// Sets the number of pages of memory, which must not be 0. Default: [`PAGES_DEFAULT`]. The
    /// address space of the process limits the number, and so does
    /// [`ZONE_PAGES_MAX`](plimsoll_mm::page::ZONE_PAGES_MAX) for each node.
    #[must_use]
    pub fn pages(self, pages: Pages) -> Self {
        Self { pages, ..self }
    }

    /// Divides the pages into this many nodes, whose sizes differ by less than 2048 pages. Every
    /// node but the last has a multiple of 1024 pages, so there must be more than 1024 pages for
    /// each node but the last. Default: 1; at most [`NODES_MAX`]. A CPU prefers the memory of
    /// its own node. The pool does not bind memory to nodes of the computer: the kernel puts a page
    /// on the node of the CPU that first touches the page.
    #[must_use]
    pub fn nodes(self, nodes: u32) -> Self {
        Self { nodes, ..self }
    }

    /// Sets the zones, in place of [`Builder::pages`] and [`Builder::nodes`]. The arena then
    /// extends to the end of the last zone; holes take only address space.
    #[must_use]
    pub fn layout(self, layout: Layout) -> Self {
        let layout = Some(layout);
        Self { layout, ..self }
    }

    /// Sets the kernel's policy for huge pages. Default: [`HugePages::AsSystem`].
    #[must_use]
    pub fn huge(self, huge: HugePages) -> Self {
        Self { huge, ..self }
    }

    /// Makes the kernel allocate memory for all pages while the pool is built. By default, the
    /// kernel allocates memory for a page when the page is first touched.
    #[must_use]
    pub fn populate(self) -> Self {
        let populate = true;
        Self { populate, ..self }
    }

    /// Sets the design, which names an algorithm (a variant) for each mechanism. Default:
    /// [`Design::OURS`].
    #[must_use]
    pub fn design(mut self, design: Design) -> Self {
        self.config.design = design;
        self
    }

    /// Sets the CPUs. Default: the CPUs that Linux describes. If Linux describes none, as many
    /// equal CPUs as this process may use.
    #[must_use]
    pub fn topology(self, topology: Topology) -> Self {
        let cpus = Some(Cpus::Described(topology));
        Self { cpus, ..self }
    }

    /// Sets the number of CPUs, which are equal and on one node. At least 1, at most [`CPUS_MAX`].
    /// Default: see [`Builder::topology`]. Unless [`Builder::upkeep`] says otherwise, the pool
    /// starts a thread for each CPU.
    #[must_use]
    pub fn cpus(self, cpus: u32) -> Self {
        let cpus = Some(Cpus::Equal(cpus));
        Self { cpus, ..self }
    }

    /// Passes each event, with its CPU and time, to `observer`, which must obey the rules of
    /// [`Host::with_observer`]. Default: no observer.
    #[must_use]
    pub fn observer(self, observer: impl Fn(CpuId, Nanos, Event) + Send + Sync + 'static) -> Self {
        let observer: Option<Observer> = Some(Box::new(observer));
        Self { observer, ..self }
    }

    /// Uses a machine that exists already. Call this method if a part of the program, such as an
    /// [`OutOfMemory`](plimsoll_mm::oom::OutOfMemory), needs the machine before the pool exists.
    /// Default: the pool makes a machine.
    #[must_use]
    pub fn host(self, host: Host) -> Self {
        let host = Some(host);
        Self { host, ..self }
    }

    /// Sets the initial value of a knob, a setting like a sysctl of Linux. Default and bounds:
    /// [`Knob::spec`].
    #[must_use]
    pub fn knob(mut self, knob: Knob, value: u64) -> Self {
        self.knobs.push((knob, value));
        self
    }

    /// Adds an object that frees memory when memory is short. Default: none. Reclaimers are called
    /// in the order in which they were added.
    #[must_use]
    pub fn reclaimer(mut self, reclaimer: impl Reclaimer<Host> + 'static) -> Self {
        self.config.reclaimers.push(Box::new(reclaimer));
        self
    }

    /// Sets the object that an allocation calls when reclaimers free nothing more. Default: none,
    /// and the allocation fails.
    #[must_use]
    pub fn last_resort(mut self, last_resort: impl LastResort<Host> + 'static) -> Self {
        self.config.last_resort = Some(Box::new(last_resort));
        self
    }

    /// Sets the object that reclaims used pages. Default: none, and no used page is reclaimed.
    #[must_use]
    pub fn pressure(mut self, pressure: impl Pressure<Host> + 'static) -> Self {
        self.config.pressure = Some(Box::new(pressure));
        self
    }

    /// Sets whether pages are grouped by mobility. Default: [`Grouping::Off`].
    #[must_use]
    pub fn grouping(mut self, grouping: Grouping) -> Self {
        self.config.grouping = grouping;
        self
    }

    /// Sets a CPU's share of the last-level cache, in pages ([`Config::cache_slice`]). Default: 1
    /// MiB.
    #[must_use]
    pub fn cache_slice(mut self, pages: Pages) -> Self {
        self.config.cache_slice = pages;
        self
    }

    /// Adds a counter, which [`Pool::counter`] finds by its name. The counter is of the same kind
    /// as the design's counters of resident pages. Default: none.
    #[must_use]
    pub fn counter(mut self, spec: CounterSpec) -> Self {
        self.counters.push(spec);
        self
    }

    /// Sets which threads do the periodic work. Default: [`Upkeep::Threads`].
    #[must_use]
    pub fn upkeep(self, upkeep: Upkeep) -> Self {
        Self { upkeep, ..self }
    }

    /// Builds the pool.
    ///
    /// # Errors
    /// [`BuildError`], which says what to change. A failed attempt leaves nothing behind.
    pub fn build(mut self) -> Result<Pool, BuildError> {
        let layout = match self.layout.take() {
            Some(layout) => layout,
            None => divided(self.pages, self.nodes)?,
        };
        // The check comes before the mapping, because the size of the mapping follows from the
        // layout.
        layout.check()?;
        let end = layout.zones.iter().map(|zone| zone.span().end).max();
        let frames = Pages(end.unwrap_or(0));
        for (knob, value) in &self.knobs {
            self.config.tunables.set(*knob, *value)?;
        }
        let cpus = self.cpus.map(Cpus::topology).transpose()?;
        let host = machine(self.host, cpus, self.observer)?;
        let arena = Arc::new(Arena::new(frames, self.huge)?);
        if self.populate {
            arena.populate().map_err(BuildError::Populate)?;
        }
        let counting = self.config.design.counting;
        self.config.layout = layout;
        let manager = Arc::new(Manager::new(&host, self.config)?);
        let counters = match &*self.counters {
            [] => None,
            specs => Some(NamedCounters::new(&host, counting, specs)?),
        };
        let workers = match self.upkeep {
            Upkeep::ByEmbedder => None,
            Upkeep::Threads => {
                let upkeep = Arc::clone(&manager);
                let workers = host.start(move |host, job| upkeep.run(host, job))?;
                manager.start(&host);
                Some(workers)
            }
        };
        Ok(Pool(Arc::new(Shared {
            workers,
            counters,
            manager,
            arena,
            host,
        })))
    }
}

/// Returns `host` if it is given. Otherwise creates a machine with these CPUs and this observer; if
/// `cpus` is `None`, the machine has the CPUs of this computer.
fn machine(
    host: Option<Host>,
    cpus: Option<Topology>,
    observer: Option<Observer>,
) -> Result<Host, BuildError> {
    match (host, cpus, observer) {
        (Some(host), None, None) => Ok(host),
        (Some(_), _, _) => Err(BuildError::HostAndMore),
        (None, cpus, observer) => {
            let cpus = cpus.unwrap_or_else(topology::read_or_flat);
            Ok(match observer {
                Some(observer) => Host::with_observer(cpus, observer),
                None => Host::with_topology(cpus),
            })
        }
    }
}

/// Divides `pages` pages into one zone for each of `nodes` nodes.
fn divided(pages: Pages, nodes: u32) -> Result<Layout, BuildError> {
    if nodes == 1 {
        return Ok(Layout::arena(pages).with_bitmaps());
    }
    let refused = BuildError::Nodes { nodes, pages };
    if !(1..=NODES_MAX).contains(&nodes) {
        return Err(refused);
    }
    // Each node gets whole blocks of the largest order. Only the last block may have fewer pages;
    // it belongs to the last node.
    let block = Order::MAX.pages().0;
    let blocks = pages.0.div_ceil(block);
    if blocks < nodes {
        return Err(refused);
    }
    let [all_blocks, all_nodes] = [blocks, nodes].map(u64::from);
    let start = |node: u32| {
        let first = (u64::from(node) * all_blocks).div_ceil(all_nodes);
        // The last block may be incomplete, so the last node ends at the end of `pages`.
        u32::try_from(first * u64::from(block)).map_or(pages.0, |start| start.min(pages.0))
    };
    let zone = |node: u32| {
        let (start, end) = (start(node), start(node + 1));
        ZoneLayout {
            kind: ZoneKind::Normal,
            node: NodeId(node),
            start: Pfn(start),
            spanned: Pages(end - start),
            holes: Vec::new(),
        }
    };
    Ok(Layout::of((0..nodes).map(zone)).with_bitmaps())
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder")
            .field("pages", &self.pages)
            .field("nodes", &self.nodes)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}
