//! Two tenants share a machine. One tenant exceeds its budget and is killed, but this tenant is
//! stuck and does not exit. The reaper frees the memory of the stuck tenant, and the other tenant
//! continues.
//!
//! `cargo run --release -p plimsoll-host --example oom_kill`
#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use std::error::Error;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use plimsoll_host::Host;
use plimsoll_mm::Manager;
use plimsoll_mm::design::Design;
use plimsoll_mm::machine::Machine;
use plimsoll_mm::oom::{How, Kind, Next, OomKiller, Patience, Process, Signals, State};
use plimsoll_mm::page::{Config, Layout};
use plimsoll_mm::space::budget::Budget;
use plimsoll_mm::space::{Access, AddressSpace, FaultError, MapRequest, Memory, Place, Spaces};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{Nanos, Pages, ProcessId, Vpn};

/// The number of pages that the memory manager has: 256 MiB.
const PAGES: Pages = Pages(1 << 16);
const MODEST_PAGES: u64 = 5_000;
const BUDGET_PAGES: u64 = 20_000;
const START: Vpn = Vpn(1 << 20);

/// The way in which tenants are told to die. A tenant's thread polls the state of its process, so
/// `kill` only prints a message.
struct Tenants;

impl Signals<Host> for Tenants {
    fn kill(&self, _host: &Host, process: &Arc<Process<Host>>) {
        println!("tenant {} is told to die", process.id());
    }

    fn thaw(&self, _host: &Host, _process: &Arc<Process<Host>>) {}

    /// Schedules nothing, because the main thread runs the reaper itself.
    fn reap_at(&self, _host: &Host, _at: Nanos) {}
}

/// A slow request. A tenant that waits for the request does not exit, even if it has been killed.
#[derive(Default)]
struct Stuck {
    is_over: Mutex<bool>,
    changed: Condvar,
}

impl Stuck {
    fn wait(&self) {
        let is_over = self.is_over.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_while(is_over, |is_over| !*is_over);
        drop(waited);
    }

    fn end(&self) {
        *self.is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let host = Host::with_topology(Topology::flat(2));
    let manager = Manager::new(&host, Config::new(Layout::arena(PAGES)))?;
    let spaces = Spaces::new(&host, &Design::OURS, 0)?;
    let memory = Memory::new(&host, &manager, &spaces);
    // Linux waits 2 s before it reaps. A shorter delay is enough here, because no thread waits for
    // locks in the victim's memory.
    let patience = Patience {
        delay: Nanos(20_000_000),
        ..Patience::LINUX
    };
    let killer = OomKiller::new(&host, Tenants, patience);

    let modest = tenant(memory, &killer, 1, u64::MAX)?;
    let greedy = tenant(memory, &killer, 2, BUDGET_PAGES)?;
    use_pages(memory, &modest, MODEST_PAGES)?;
    let stuck = Stuck::default();
    thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        let grows = scope.spawn(|| -> Result<(), String> {
            // The tenant touches more pages than its budget allows, so the first page beyond the
            // budget is refused. The victim is the process of this tenant, because no other process
            // has this budget.
            let refused = use_pages(memory, &greedy, u64::from(PAGES.0));
            let Err(FaultError::OverBudget(over)) = refused else {
                return Err(format!("it has a budget: {refused:?}"));
            };
            println!("tenant 2: {over}");
            let all = [Arc::clone(&modest), Arc::clone(&greedy)];
            let budget = greedy.space(&host).and_then(|space| space.budget());
            let killed = killer.kill(memory, &greedy, &all.iter(), budget);
            assert_eq!(killed.signalled, 1, "no process shares its memory");
            print_free(memory, "killed, but stuck");
            stuck.wait();
            let exited = killer.exit(memory, &greedy);
            exited.map_or_else(|error| Err(error.to_string()), |_| Ok(()))
        });
        let reaped = reap(memory, &killer);
        print_free(memory, "reaped");
        stuck.end();
        grows.join().map_err(|_| "the tenant panicked")??;
        assert_eq!(reaped, Some(How::Emptied), "it did not exit in time");
        Ok(())
    })?;
    assert_eq!(killer.victims(&host), 0, "it has exited");

    // The memory of the other tenant is intact, and that tenant has room to grow.
    use_pages(memory, &modest, 2 * MODEST_PAGES)?;
    killer.exit(memory, &modest)?;
    for tenant in [modest, greedy] {
        killer.retire(&host, tenant)?;
    }
    let free = print_free(memory, "both gone");
    assert_eq!(free, PAGES, "every page is back");
    Ok(())
}

type Killer = OomKiller<Host, Tenants>;

/// Creates a tenant with a budget of `limit` pages.
fn tenant(
    memory: Memory<'_, Host>,
    killer: &Killer,
    id: u32,
    limit: u64,
) -> Result<Arc<Process<Host>>, Box<dyn Error>> {
    let budget = Arc::new(Budget::new(memory.machine, limit));
    let space = AddressSpace::new(memory)?.limited(budget);
    space.map(
        memory,
        MapRequest::anonymous(Place::Fixed(START), u64::from(PAGES.0)),
    )?;
    let space = Some(Arc::new(space));
    let process = killer.enroll(memory.machine, ProcessId(id), Kind::Process, space);
    process
        .map(Arc::new)
        .map_err(|_| "no memory for a process".into())
}

/// Touches the first `pages` pages of the tenant's mapping, but stops if the tenant is killed or a
/// page is refused.
fn use_pages(
    memory: Memory<'_, Host>,
    process: &Process<Host>,
    pages: u64,
) -> Result<(), FaultError> {
    let Some(space) = process.space(memory.machine) else {
        return Err(FaultError::Ended);
    };
    for page in START.0..START.0 + pages {
        if process.is(memory.machine, State::Killed) {
            return Err(FaultError::Killed);
        }
        space.fault(memory, Vpn(page), Access::Write)?;
    }
    let resident = space.rss().resident_precise(memory.machine);
    println!("tenant {} uses {resident} pages", process.id());
    Ok(())
}

/// Runs the reaper on this thread until it has finished with a victim, but for at most ten seconds.
/// Returns how the reaping ended.
fn reap(memory: Memory<'_, Host>, killer: &Killer) -> Option<How> {
    let host = memory.machine;
    let end = host.now().0 + 10_000_000_000;
    while host.now().0 < end {
        let stepped = killer.reaper().step(memory);
        if let Some(done) = stepped.done {
            return Some(done.how);
        }
        let pause = match stepped.next {
            Next::At(at) => at.0.saturating_sub(host.now().0),
            Next::Idle => 1_000_000,
        };
        thread::sleep(Duration::from_nanos(pause));
    }
    None
}

/// Prints and returns the number of free pages.
fn print_free(memory: Memory<'_, Host>, when: &str) -> Pages {
    memory.manager.pages().drain_all_sync(memory.machine);
    let free = memory.manager.pages().view(memory.machine)[0].free;
    println!("{when}: {free} of {PAGES} pages are free");
    free
}

#[test]
fn it_runs() -> Result<(), Box<dyn Error>> {
    main()
}
