//! Tenants of a server with budgets of memory. A tenant that exceeds its own budget dies. When all
//! of the server's memory is used, the server's own *selector* chooses the tenant that pays least,
//! instead of the largest one.
//!
//! `cargo run --release -p plimsoll-host --example tenants`
#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use std::cell::RefCell;
use std::error::Error;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use plimsoll_host::Host;
use plimsoll_host::pool::Pool;
use plimsoll_mm::counter::Range;
use plimsoll_mm::design::Design;
use plimsoll_mm::oom::{
    Candidates, Kind, Look, NoVictim, OomKiller, OutOfMemory, Outcome, Owner, Patience, Process,
    Report, Rules, Scope, SelectError, Selection, Selector, Signals, Slot, Standing, State, Victim,
};
use plimsoll_mm::space::budget::Budget;
use plimsoll_mm::space::{Access, AddressSpace, FaultError, MapRequest, Memory, Place, Spaces};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{Nanos, Pages, ProcessId, Vpn};

/// The memory of the server: 64 MiB.
const PAGES: Pages = Pages(1 << 14);
const START: Vpn = Vpn(1 << 20);
/// The list of tenants, the list of fees and the OOM killer's slots (its memory for candidates)
/// have room for this many tenants.
const TENANTS_MAX: usize = 16;

thread_local! {
    /// The tenant for which this thread allocates.
    static CURRENT: RefCell<Option<Arc<Process<Host>>>> = const { RefCell::new(None) };
}

/// The fee of each tenant, in the order in which the tenants were made. The selector must not wait,
/// so it reads the fees without a lock.
type Fees = Arc<[AtomicU32; TENANTS_MAX]>;

/// Chooses the tenant that pays least, of those that may be killed.
struct LeastPaying(Fees);

impl Selector for LeastPaying {
    fn name(&self) -> &'static str {
        "least-paying"
    }

    fn select(
        &self,
        candidates: &dyn Candidates,
        scope: &Scope,
        _slots: &mut [Slot],
    ) -> Result<Selection, SelectError> {
        let mut cheapest = None;
        let mut dying = None;
        for candidate in 0..candidates.len() {
            let Some(facts) = candidates.facts(candidate) else {
                continue;
            };
            match Standing::of(candidates, scope, &facts) {
                Standing::Exempt => {}
                Standing::Dying => dying = Some(candidate),
                Standing::Origin | Standing::Counted(_) => {
                    let fee = self.0[candidate as usize].load(Relaxed);
                    let this = (fee, candidate);
                    cheapest = Some(cheapest.map_or(this, |other: (u32, u32)| other.min(this)));
                }
            }
        }
        let outcome = match (dying, cheapest) {
            (Some(dying), _) => Outcome::Nobody(NoVictim::Aborted { dying }),
            (None, Some((_, candidate))) => Outcome::Victim(Victim {
                candidate,
                points: Range::exactly(candidates.precise(candidate).unwrap_or(0)),
                behind: 0,
            }),
            (None, None) => Outcome::Nobody(NoVictim::NoneKillable),
        };
        Ok(Selection {
            outcome,
            precise_sums: 1,
            batches: 0,
        })
    }
}

/// The way in which tenants are told to die. A tenant's thread polls the state of its process.
struct Tell;

impl Signals<Host> for Tell {
    fn kill(&self, _host: &Host, process: &Arc<Process<Host>>) {
        println!("tenant {} is told to die", process.id());
    }

    fn thaw(&self, _host: &Host, _process: &Arc<Process<Host>>) {}

    /// Schedules nothing: these tenants exit in time, so the reaper need not run.
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

type LastResort = Arc<OutOfMemory<Host, Tell, House>>;

/// The server, on which tenants live.
struct Server<'m> {
    memory: Memory<'m, Host>,
    oom: &'m LastResort,
    fees: &'m Fees,
}

impl Server<'_> {
    /// Creates a tenant that pays `fee` and may use `limit` pages.
    fn tenant(&self, id: u32, fee: u32, limit: u64) -> Result<Arc<Process<Host>>, Box<dyn Error>> {
        let Self { memory, oom, fees } = *self;
        let host = memory.machine;
        let budget = Arc::new(Budget::new(host, limit));
        let space = AddressSpace::new(memory)?.limited(budget);
        let all = MapRequest::anonymous(Place::Fixed(START), u64::from(PAGES.0));
        space.map(memory, all)?;
        let space = Some(Arc::new(space));
        let process = oom
            .killer()
            .enroll(host, ProcessId(id), Kind::Process, space);
        let process = Arc::new(process.map_err(|_| "no memory for a process")?);
        // The OOM killer locks the list of tenants while it holds the OOM lock. `reserve` takes the
        // OOM lock too, so this thread must call `reserve` before it locks the list.
        oom.reserve(host, TENANTS_MAX)
            .map_err(|_| "no memory for a slot")?;
        let mut all = oom.owner().0.lock().unwrap_or_else(PoisonError::into_inner);
        let own_fee = fees.get(all.len()).ok_or("the house is full")?;
        // Relaxed is enough: the selector looks a tenant up under the lock of the list, and this
        // lock makes the fee visible too.
        own_fee.store(fee, Relaxed);
        // The list has room for all tenants, so the call does not allocate under the lock.
        all.push(Arc::clone(&process));
        Ok(process)
    }

    /// Touches the first `pages` pages of the tenant's mapping on this thread. A tenant that is
    /// told to die exits. Returns whether the tenant still lives.
    fn grow(&self, tenant: &Arc<Process<Host>>, pages: u64) -> Result<bool, String> {
        let Self { memory, oom, .. } = *self;
        CURRENT.set(Some(Arc::clone(tenant)));
        let host = memory.machine;
        let space = tenant.space(host).ok_or("it has ended")?;
        for page in START.0..START.0 + pages {
            match oom.fault_or_kill(memory, space, Vpn(page), Access::Write) {
                Ok(_) => {}
                Err(FaultError::Killed) => break,
                Err(error) => return Err(error.to_string()),
            }
        }
        self.lives_on(tenant)
    }

    /// If the tenant was told to die, makes it exit. Returns whether the tenant still lives.
    fn lives_on(&self, tenant: &Arc<Process<Host>>) -> Result<bool, String> {
        let lives = !tenant.is(self.memory.machine, State::Killed);
        if !lives {
            let exited = self.oom.killer().exit(self.memory, tenant);
            exited.map_err(|error| error.to_string())?;
        }
        Ok(lives)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    // The last resort, which kills a tenant when memory is out, needs a machine, but the pool needs
    // the last resort. So the machine is created first.
    let host = Host::with_topology(Topology::flat(2));
    let fees = Fees::default();
    let killer = Arc::new(OomKiller::new(&host, Tell, Patience::LINUX));
    let oom = OutOfMemory::new(
        &host,
        killer,
        House(Mutex::new(Vec::with_capacity(TENANTS_MAX))),
        Rules::default(),
        Vec::new(),
    );
    let oom = Arc::new(oom.selecting_by(LeastPaying(Arc::clone(&fees))));
    let pool = Pool::builder()
        .host(host.clone())
        .pages(PAGES)
        .last_resort(Arc::clone(&oom))
        .build()?;
    let spaces = Spaces::new(&host, &Design::OURS, 0)?;
    let memory = Memory::new(&host, pool.manager(), &spaces);
    let server = Server {
        memory,
        oom: &oom,
        fees: &fees,
    };

    let rich = server.tenant(1, 100, u64::MAX)?;
    let free = server.tenant(2, 0, u64::MAX)?;
    let limited = server.tenant(3, 50, 1000)?;
    assert!(server.grow(&rich, 9000)?);
    assert!(server.grow(&free, 3000)?);
    // The tenant needs more pages than its budget has left. This tenant is killed, because no other
    // tenant has this budget.
    assert!(!server.grow(&limited, 2000)?, "it exceeds its own budget");
    assert_eq!(oom.killer().kills(&host), 1);

    // The next tenant needs more memory than is left. This tenant is the largest, but the tenant
    // `free` pays less. So `free` is killed.
    thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        let dies = scope.spawn(|| -> Result<bool, String> {
            while !free.is(&host, State::Killed) {
                thread::sleep(Duration::from_millis(1));
            }
            server.lives_on(&free)
        });
        assert!(server.grow(&rich, 14_000)?, "it pays most");
        assert!(!dies.join().map_err(|_| "a tenant panicked")??);
        Ok(())
    })?;
    assert_eq!(oom.killer().kills(&host), 2, "one more was enough");

    oom.killer().exit(memory, &rich)?;
    while oom.killer().reaper().queued(&host) > 0 {
        thread::sleep(Duration::from_millis(20));
        oom.killer().reaper().step(memory);
    }
    pool.pages().drain_all_sync(&host);
    assert_eq!(
        pool.pages().view(&host)[0].free,
        PAGES,
        "every page is back"
    );
    println!("every page is back");
    Ok(())
}

#[test]
fn it_runs() -> Result<(), Box<dyn Error>> {
    main()
}
