//! A small machine with a memory manager, for tests that choose every detail themselves.

use std::cell::RefCell;
use std::rc::Rc;

use plimsoll_mm::Manager;
use plimsoll_mm::design::Design;
use plimsoll_mm::event::Event;
use plimsoll_mm::machine::{Job, Machine};
use plimsoll_mm::page::watermark::Urgency;
use plimsoll_mm::page::{Config, Layout, Request, ZoneView};
use plimsoll_mm::site::{Site, Work};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::tunables::Knob;
use plimsoll_mm::units::{CpuId, Hz, Nanos, Order, Pages, Pfn};
use plimsoll_mm::vmstat::counters::ZoneItem;
use plimsoll_sim::profile::{Card, Costs, Load, Profile, Slopes};
use plimsoll_sim::{Sim, SimOptions};

use crate::common::jitter;

/// A machine, its manager, and the events and job starts that were observed.
pub(crate) struct Small {
    pub(crate) sim: Sim,
    pub(crate) mm: Rc<Manager<Sim>>,
    pub(crate) seen: Rc<RefCell<Vec<Seen>>>,
    pub(crate) starts: Rc<RefCell<Vec<(Job, CpuId, Nanos)>>>,
}

/// An event, with its CPU and its time.
pub(crate) type Seen = (CpuId, Nanos, Event);

/// Returns a profile of `topology` with simple prices.
pub(crate) fn profile(topology: Topology, hz: u32) -> Profile {
    let mut work_ns = [50; Work::ALL.len()];
    work_ns[Work::ContextSwitch as usize] = 1000;
    work_ns[Work::Interrupt as usize] = 500;
    work_ns[Work::Ipi as usize] = 200;
    work_ns[Work::Think as usize] = 1;
    // As in real profiles, most of the time of a fault passes before the fault acquires a lock, so
    // other CPUs may act in between.
    work_ns[Work::Fault as usize] = 1400;
    work_ns[Work::MinorFault as usize] = 970;
    Profile {
        name: "small".into(),
        card: Card::Mid,
        topology,
        hz: Hz::new(hz).expect("in range"),
        node_bytes: vec![1 << 30],
        costs: Costs {
            work_ns,
            slopes: Slopes::default(),
            transfer_ns: [1, 10, 30, 100, 190],
            lock_own_ns: 20,
            lock_remote_extra_ns: 40,
            lock_handover_extra_ns: 25,
            word_own_ns: 5,
        },
        speed_percent: Vec::new(),
        jitter: Some(jitter()),
        load: Load::default(),
    }
}

/// Returns a request that ignores watermarks.
pub(crate) fn any(order: Order) -> Request {
    Request::new(order).urgent(Urgency::Reserve)
}

/// Returns `order`, which must be at most 10, as an [`Order`].
pub(crate) fn order(order: u8) -> Order {
    Order::new(order).expect("at most 10")
}

impl Small {
    /// Creates a machine of `cpus` equal CPUs at HZ 1000, with one zone of `pages` pages.
    pub(crate) fn flat(cpus: u32, pages: u32, design: Design) -> Self {
        let mut config = Config::new(Layout::arena(Pages(pages)));
        config.design = design;
        Self::new(&profile(Topology::flat(cpus), 1000), config)
    }

    pub(crate) fn new(profile: &Profile, config: Config<Sim>) -> Self {
        Self::with_options(profile, config, SimOptions::default())
    }

    pub(crate) fn with_options(
        profile: &Profile,
        config: Config<Sim>,
        options: SimOptions,
    ) -> Self {
        let sim = Sim::new(profile, options);
        let mm = Rc::new(Manager::new(&sim, config).expect("the layout is possible"));
        let small = Self {
            sim,
            mm,
            seen: Rc::default(),
            starts: Rc::default(),
        };
        let (mm, starts) = (Rc::clone(&small.mm), Rc::clone(&small.starts));
        small.sim.on_job(move |sim, job| {
            starts.borrow_mut().push((job, sim.this_cpu(), sim.now()));
            mm.run(sim, job);
        });
        let mm = Rc::clone(&small.mm);
        small.sim.on_idle(move |sim| mm.quiet(sim));
        let seen = Rc::clone(&small.seen);
        small.sim.observe(move |_, cpu, at, event| {
            seen.borrow_mut().push((cpu, at, *event));
        });
        small
    }

    pub(crate) fn tune(&self, knob: Knob, value: u64) {
        let set = self.mm.pages().set_tunable(&self.sim, knob, value);
        set.expect("in bounds");
    }

    /// Returns a view of the first zone.
    pub(crate) fn zone(&self) -> ZoneView {
        self.mm.pages().view(&self.sim).swap_remove(0)
    }

    /// Runs `body` on `cpu` until it returns.
    pub(crate) fn on(&self, cpu: u32, body: impl FnOnce(&Sim, &Manager<Sim>) + 'static) {
        let mm = Rc::clone(&self.mm);
        self.sim.spawn(CpuId(cpu), move |sim| body(sim, &mm));
        self.sim.run();
    }

    /// Starts a task on `cpu` that never sleeps. On any CPU on which it runs, the task leaves a
    /// differential, which is an amount that the CPU has not yet added to a shared counter. The
    /// differential is only 1, so that it does not exceed the threshold at which the CPU adds it to
    /// the counter.
    pub(crate) fn keep_busy(&self, cpu: CpuId) {
        let mm = Rc::clone(&self.mm);
        self.sim.spawn_daemon(cpu, move |sim| {
            loop {
                if !mm.is_dirty(sim, sim.this_cpu()) {
                    mm.pages().count(sim, Pfn(0), ZoneItem::Anon, 1);
                }
                sim.spend(Work::Think, 50_000_000);
            }
        });
    }

    /// Returns the times at which the vmstat work of `cpu` started.
    pub(crate) fn starts_of(&self, cpu: CpuId) -> Vec<Nanos> {
        let starts = self.starts.borrow();
        let of_cpu = starts
            .iter()
            .filter(|start| start.0 == Job::VmstatUpdate && start.1 == cpu);
        of_cpu.map(|start| start.2).collect()
    }

    /// Returns the number of pages moved in each hold of the zone lock at the call site `site`.
    pub(crate) fn holds(&self, site: Site) -> Vec<u32> {
        let seen = self.seen.borrow();
        let pages = seen.iter().filter_map(|(_, _, event)| match *event {
            Event::ZoneHold {
                site: at, pages, ..
            } if at == site => Some(pages.0),
            _ => None,
        });
        pages.collect()
    }
}
