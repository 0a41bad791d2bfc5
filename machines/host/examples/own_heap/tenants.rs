//! Tenants with address spaces, the OOM killer, and the reaper. The tenants use the memory that the
//! heap of the process does not use.
//!
//! Code that runs while memory is exhausted must not allocate. Its lists are allocated in advance,
//! and it prints nothing.

use std::cell::Cell;
use std::error::Error;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use plimsoll_host::Host;
use plimsoll_host::arena::{Arena, HugePages};
use plimsoll_mm::Manager;
use plimsoll_mm::design::Design;
use plimsoll_mm::oom::{
    How, Kind, Look, OomKiller, OutOfMemory, Owner, Patience, Process, Rules, State,
};
use plimsoll_mm::page::{Config, Layout};
use plimsoll_mm::space::{Access, AddressSpace, Backing, Flag, MapRequest, Memory, Place, Spaces};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Nanos, Pages, ProcessId, Vpn};

use crate::slab::freeing;
use crate::{CPUS, Random};

/// The number of pages that the memory manager has: 256 MiB. Most of this memory is never touched,
/// because no tenant writes to its pages.
pub(crate) const PAGES: Pages = Pages(1 << 16);
/// The largest number of tenants at any time.
const TENANTS: usize = 8;

/// Everything that the heap depends on. It is allocated from the system's allocator and is never
/// freed.
pub(crate) struct Machinery {
    pub(crate) arena: Arena,
    pub(crate) host: Host,
    pub(crate) manager: Manager<Host>,
    pub(crate) spaces: Spaces<Host>,
    pub(crate) oom: Arc<OutOfMemory<Host, (), House>>,
    /// The number of tenants whose memory the reaper freed.
    reaped: AtomicU64,
}

/// All tenants: a list of them, and an array that is indexed by their ids.
pub(crate) struct House {
    all: Mutex<Vec<Arc<Process<Host>>>>,
    /// The tenants, indexed by their ids. A thread finds its own tenant here even while `all` is
    /// locked.
    by_id: [Mutex<Option<Arc<Process<Host>>>>; TENANTS],
}

thread_local! {
    /// The number of the tenant that this thread plays. The type of this variable must not need a
    /// destructor, because registering a destructor allocates memory.
    static TENANT: Cell<Option<usize>> = const { Cell::new(None) };
}

impl Owner<Host> for House {
    fn with_processes(&self, _host: &Host, look: &mut Look<'_, Host>) {
        look(&self.all.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn current(&self, _host: &Host) -> Option<Arc<Process<Host>>> {
        let own = self.by_id[TENANT.get()?].lock();
        own.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn pause(&self, _host: &Host) {
        thread::sleep(Duration::from_millis(1));
    }
}

impl Machinery {
    pub(crate) fn new() -> Result<Self, Box<dyn Error>> {
        let host = Host::with_topology(Topology::flat(CPUS));
        let patience = Patience {
            delay: Nanos(5_000_000),
            pause: Nanos(1_000_000),
            ..Patience::LINUX
        };
        let killer = Arc::new(OomKiller::new(&host, (), patience));
        let house = House {
            all: Mutex::new(Vec::with_capacity(TENANTS)),
            by_id: [const { Mutex::new(None) }; TENANTS],
        };
        let rules = Rules::default();
        let oom = Arc::new(OutOfMemory::new(&host, killer, house, rules, Vec::new()));
        oom.reserve(&host, TENANTS)
            .map_err(|_| "no memory for slots")?;
        let mut config = Config::new(Layout::arena(PAGES));
        config.last_resort = Some(Box::new(Arc::clone(&oom)));
        let manager = Manager::new(&host, config)?;
        Ok(Self {
            arena: Arena::new(PAGES, HugePages::AsSystem)?,
            spaces: Spaces::new(&host, &Design::OURS, 1000)?,
            reaped: AtomicU64::new(0),
            manager,
            oom,
            host,
        })
    }

    /// Returns the number of tenants that have been killed.
    pub(crate) fn kills(&self) -> u64 {
        self.oom.killer().kills(&self.host)
    }

    /// Returns the number of tenants whose memory the reaper freed.
    pub(crate) fn reaped(&self) -> u64 {
        self.reaped.load(Relaxed)
    }

    pub(crate) fn memory(&self) -> Memory<'_, Host> {
        Memory::new(&self.host, &self.manager, &self.spaces)
    }

    /// Runs the reaper until `stop` is set and no victim is queued.
    pub(crate) fn reap(&self, stop: &AtomicBool) {
        let _entered = self.host.enter(CpuId(0));
        let reaper = self.oom.killer().reaper();
        while !stop.load(Relaxed) || reaper.queued(&self.host) > 0 {
            let stepped = freeing(|| reaper.step(self.memory()));
            if let Some(done) = stepped.done {
                assert!(done.bad_rss.is_none(), "{done:?}");
                let took = u64::from(done.how == How::Emptied);
                self.reaped.fetch_add(took, Relaxed);
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A thread that plays one tenant after another.
pub(crate) struct Tenant {
    all: &'static Machinery,
    id: u32,
    random: Random,
}

impl Tenant {
    pub(crate) fn new(all: &'static Machinery, id: u32) -> Self {
        let random = Random(u64::from(id) << 32 | 7);
        Self { all, id, random }
    }

    pub(crate) fn live(mut self, stop: &AtomicBool) {
        let _entered = self.all.host.enter(CpuId(self.id));
        TENANT.set(Some(self.id as usize));
        while !stop.load(Relaxed) {
            if let Some(process) = self.arrive() {
                self.grow(&process, stop);
                self.leave(process);
            }
        }
        TENANT.set(None);
    }

    /// Creates a process that does not use any pages yet; `None` if there is currently no memory
    /// for it.
    fn arrive(&mut self) -> Option<Arc<Process<Host>>> {
        let space = Arc::new(AddressSpace::new(self.all.memory()).ok()?);
        let killer = self.all.oom.killer();
        let (id, space) = (ProcessId(self.id), Some(space));
        let process = killer.enroll(&self.all.host, id, Kind::Process, space);
        let process = Arc::new(process.ok()?);
        let house = self.all.oom.owner();
        let mut own = house.by_id[self.id as usize]
            .lock()
            .expect("no tenant panics");
        *own = Some(Arc::clone(&process));
        drop(own);
        house
            .all
            .lock()
            .expect("no tenant panics")
            .push(Arc::clone(&process));
        Some(process)
    }

    /// Uses more and more memory, and unmaps or swaps out some of it. Returns when the tenant must
    /// die, or when its address space is large enough.
    fn grow(&mut self, process: &Arc<Process<Host>>, stop: &AtomicBool) {
        let (host, memory) = (&self.all.host, self.all.memory());
        let space = process.space(host).expect("it has not left");
        // The tenant stops growing when its address space has this many pages. About half of them
        // are touched.
        let enough = 80_000 + self.random.below(100_000) as u64;
        let mut at = 0;
        while at < enough && !stop.load(Relaxed) && !process.is(host, State::Killed) {
            let pages = 64 + self.random.below(960) as u64;
            let (place, huge) = (Place::Fixed(Vpn(at)), self.random.below(8) == 0);
            let backing = Backing::Anonymous { huge };
            let request = MapRequest {
                place,
                pages,
                backing,
            };
            if space.map(memory, request).is_err() {
                return;
            }
            // The first eighth of the pages is touched page by page; the other pages are populated
            // by one call.
            let first = Vpn(at + pages / 8);
            let mut each = (at..first.0).map(|page| space.fault(memory, Vpn(page), Access::Write));
            if each.any(|faulted| faulted.is_err())
                || space.populate(memory, first..Vpn(at + pages)).is_err()
            {
                return;
            }
            let (start, pages) = (Vpn(at + pages / 4), pages / 4);
            match self.random.below(6) {
                0 => drop(space.unmap(memory, start, pages)),
                1 => drop(space.swap_out(memory, start..Vpn(start.0 + pages))),
                _ => {}
            }
            at += 1024;
        }
        // About every second tenant that must die is stuck, so the reaper must take its memory.
        let is_stuck = self.random.below(2) == 0 && process.is(host, State::Killed);
        // The loop ends, because the reaper sets `Flag::Skip` even if its attempts fail.
        while is_stuck && !space.has(host, Flag::Skip) {
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn leave(&mut self, process: Arc<Process<Host>>) {
        let (host, killer) = (&self.all.host, self.all.oom.killer());
        let exited = freeing(|| killer.exit(self.all.memory(), &process));
        assert!(exited.is_ok(), "it leaves once");
        let house = self.all.oom.owner();
        let mut own = house.by_id[self.id as usize]
            .lock()
            .expect("no tenant panics");
        let listed = own.take();
        drop(own);
        let mut all = house.all.lock().expect("no tenant panics");
        let place = all.iter().position(|other| Arc::ptr_eq(other, &process));
        let in_house = place.map(|place| all.swap_remove(place));
        drop(all);
        // `retire` frees the process only if it gets the last reference. If the reaper still holds
        // a reference, the reaper frees the process.
        for known in [listed, in_house, Some(process)].into_iter().flatten() {
            let retired = killer.retire(host, known);
            assert_eq!(retired, Ok(()), "its pages were counted right");
        }
    }
}
