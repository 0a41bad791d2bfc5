//! Tenants use memory until none is left. The largest tenant is killed, and then the failed
//! allocation succeeds.
//!
//! `cargo run --release -p plimsoll-host --example out_of_memory`
#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use std::cell::RefCell;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use plimsoll_host::Host;
use plimsoll_mm::Manager;
use plimsoll_mm::design::Design;
use plimsoll_mm::oom::{
    Kind, Look, OomKiller, OutOfMemory, Owner, Patience, Process, Report, Rules, Signals, State,
};
use plimsoll_mm::page::{Config, Layout};
use plimsoll_mm::space::{Access, AddressSpace, FaultError, MapRequest, Memory, Place, Spaces};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{Nanos, Pages, ProcessId, Vpn};

/// The number of pages that the memory manager has: 128 MiB.
const PAGES: Pages = Pages(1 << 15);
const GREEDY_PAGES: u64 = 25_000;
const SMALL_PAGES: u64 = 1000;
const MODEST_PAGES: u64 = 12_000;
const START: Vpn = Vpn(1 << 20);
/// The list of tenants and the OOM killer's slots (its memory for candidates) have room for this
/// many tenants.
const TENANTS_MAX: usize = 3;

thread_local! {
    /// The tenant for which this thread allocates.
    static CURRENT: RefCell<Option<Arc<Process<Host>>>> = const { RefCell::new(None) };
}

/// The way in which tenants are told to die. A tenant's thread polls the state of its process, so
/// `kill` only prints a message.
struct Tenants;

impl Signals<Host> for Tenants {
    fn kill(&self, _host: &Host, process: &Arc<Process<Host>>) {
        println!("tenant {} is told to die", process.id());
    }

    fn thaw(&self, _host: &Host, _process: &Arc<Process<Host>>) {}

    /// Schedules nothing: these tenants always exit in time, so the reaper need not run.
    fn reap_at(&self, _host: &Host, _at: Nanos) {}
}

/// All tenants, in the order of their creation.
struct House(Mutex<Vec<Arc<Process<Host>>>>);

impl Owner<Host> for House {
    fn with_processes(&self, _host: &Host, look: &mut Look<'_, Host>) {
        look(&self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn current(&self, _host: &Host) -> Option<Arc<Process<Host>>> {
        CURRENT.with_borrow(Option::clone)
    }

    fn pause(&self, _host: &Host) {
        thread::sleep(Duration::from_millis(1));
    }

    fn report(&self, _host: &Host, report: &Report<'_, Host>) {
        println!("{report}");
    }
}

type LastResort = Arc<OutOfMemory<Host, Tenants, House>>;

fn main() -> Result<(), Box<dyn Error>> {
    let host = Host::with_topology(Topology::flat(2));
    let killer = Arc::new(OomKiller::new(&host, Tenants, Patience::LINUX));
    let house = House(Mutex::new(Vec::with_capacity(TENANTS_MAX)));
    let rules = Rules::default();
    let oom = Arc::new(OutOfMemory::new(&host, killer, house, rules, Vec::new()));
    let mut config = Config::new(Layout::arena(PAGES));
    config.last_resort = Some(Box::new(Arc::clone(&oom)));
    let manager = Manager::new(&host, config)?;
    let spaces = Spaces::new(&host, &Design::OURS, 0)?;
    let memory = Memory::new(&host, &manager, &spaces);

    let [modest, small, greedy] = [1, 2, 3].map(|id| tenant(memory, &oom, id));
    let (modest, small, greedy) = (modest?, small?, greedy?);
    use_pages(memory, &small, SMALL_PAGES)?;
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        let lives = scope.spawn(|| -> Result<(), String> {
            use_pages(memory, &greedy, GREEDY_PAGES).map_err(|error| error.to_string())?;
            tell.send(()).map_err(|error| error.to_string())?;
            while !greedy.is(&host, State::Killed) {
                thread::sleep(Duration::from_millis(1));
            }
            let exited = oom.killer().exit(memory, &greedy);
            exited.map_or_else(|error| Err(error.to_string()), |_| Ok(()))
        });
        told.recv()?;
        // Fewer than `MODEST_PAGES` pages are free, so a tenant must be killed.
        use_pages(memory, &modest, MODEST_PAGES)?;
        lives.join().map_err(|_| "the tenant panicked")??;
        Ok(())
    })?;
    assert_eq!(oom.killer().kills(&host), 1, "one was enough");
    for tenant in [&modest, &small] {
        assert!(!tenant.is(&host, State::Killed));
        oom.killer().exit(memory, tenant)?;
    }
    // When the reaper's delay is over, the reaper finds that the victim has already exited.
    while oom.killer().reaper().queued(&host) > 0 {
        thread::sleep(Duration::from_millis(20));
        oom.killer().reaper().step(memory);
    }
    manager.pages().drain_all_sync(&host);
    let free = manager.pages().view(&host)[0].free;
    assert_eq!(free, PAGES, "every page is back");
    println!("all gone: {free} of {PAGES} pages are free");
    Ok(())
}

/// Creates a tenant that does not use any pages yet.
fn tenant(
    memory: Memory<'_, Host>,
    oom: &LastResort,
    id: u32,
) -> Result<Arc<Process<Host>>, Box<dyn Error>> {
    let space = AddressSpace::new(memory)?;
    space.map(
        memory,
        MapRequest::anonymous(Place::Fixed(START), u64::from(PAGES.0)),
    )?;
    let (host, space) = (memory.machine, Some(Arc::new(space)));
    let process = oom
        .killer()
        .enroll(host, ProcessId(id), Kind::Process, space);
    let process = Arc::new(process.map_err(|_| "no memory for a process")?);
    // The OOM killer locks the list of tenants while it holds the OOM lock. `reserve` takes the OOM
    // lock too, so this thread must call it before it locks the list.
    oom.reserve(host, TENANTS_MAX)
        .map_err(|_| "no memory for a slot")?;
    let mut all = oom.owner().0.lock().unwrap_or_else(PoisonError::into_inner);
    if all.len() == TENANTS_MAX {
        return Err("the house is full".into());
    }
    // The list has room for all tenants, so the call does not allocate under the lock.
    all.push(Arc::clone(&process));
    Ok(process)
}

/// Touches the first `pages` pages of the tenant's mapping.
fn use_pages(
    memory: Memory<'_, Host>,
    process: &Arc<Process<Host>>,
    pages: u64,
) -> Result<(), FaultError> {
    CURRENT.set(Some(Arc::clone(process)));
    let space = process.space(memory.machine).ok_or(FaultError::Ended)?;
    for page in START.0..START.0 + pages {
        space.fault(memory, Vpn(page), Access::Write)?;
    }
    let resident = space.rss().resident_precise(memory.machine);
    println!("tenant {} uses {resident} pages", process.id());
    Ok(())
}

#[test]
fn it_runs() -> Result<(), Box<dyn Error>> {
    main()
}
