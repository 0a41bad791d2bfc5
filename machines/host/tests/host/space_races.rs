//! Tests what an address space does if another CPU acts at a chosen moment: an observer stops CPU 0
//! at an event, and CPU 1 acts before CPU 0 continues.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Barrier};
use std::thread;

use plimsoll_host::Host;
use plimsoll_mm::Manager;
use plimsoll_mm::design::Design;
use plimsoll_mm::event::{Event, Phase};
use plimsoll_mm::page::{Config, Layout};
use plimsoll_mm::space::budget::Budget;
use plimsoll_mm::space::object::{Object, ObjectKind};
use plimsoll_mm::space::reap::Reaped;
use plimsoll_mm::space::{
    Access, AddressSpace, Backing, Exited, Faulted, MapRequest, Memory, Notified, Place, Refused,
    Spaces,
};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Pages, Vpn};

/// A gate at which CPU 0 stops and waits until CPU 1 has acted.
struct Gate {
    /// If true, CPU 0 stops at the next event of the chosen kind, and clears this flag.
    armed: AtomicBool,
    /// CPU 0 waits at this barrier twice: first to report that it has stopped, then until it may
    /// continue.
    barrier: Barrier,
    /// The number of steps in which CPU 1 freed the pages that it had unmapped.
    steps: AtomicU32,
}

impl Gate {
    /// Runs `first` on CPU 0 until it stops at the chosen event, then `meanwhile` on CPU 1, then
    /// the rest of `first`. Returns what `first` and `meanwhile` return. If `meanwhile` panicked,
    /// CPU 0 would wait for ever.
    fn run<T: Send, U>(
        &self,
        host: &Host,
        first: impl FnOnce() -> T + Send,
        meanwhile: impl FnOnce() -> U,
    ) -> (T, U) {
        self.armed.store(true, Relaxed);
        thread::scope(|scope| {
            let first = scope.spawn(|| {
                let _entered = host.enter(CpuId(0));
                first()
            });
            self.barrier.wait();
            let entered = host.enter(CpuId(1));
            let met = meanwhile();
            drop(entered);
            self.barrier.wait();
            (first.join().expect("CPU 0 does not panic"), met)
        })
    }
}

/// Makes a machine of two CPUs, and a gate at which CPU 0 stops at an event that `stops` accepts.
fn gated(stops: fn(Event) -> bool) -> (Host, Arc<Gate>) {
    let gate = Arc::new(Gate {
        armed: AtomicBool::new(false),
        barrier: Barrier::new(2),
        steps: AtomicU32::new(0),
    });
    let at = Arc::clone(&gate);
    let host = Host::with_observer(Topology::flat(2), move |cpu, _, event| {
        if cpu == CpuId(1) && event == Event::Begin(Phase::FreePages) {
            at.steps.fetch_add(1, Relaxed);
        }
        if cpu == CpuId(0) && stops(event) && at.armed.swap(false, Relaxed) {
            at.barrier.wait();
            at.barrier.wait();
        }
    });
    (host, gate)
}

fn manager(host: &Host) -> Manager<Host> {
    let config = Config::new(Layout::arena(Pages(1 << 14)));
    Manager::new(host, config).expect("an arena is a layout")
}

/// If several *walkers* (threads) empty an address space together and few tables are left, a walker
/// does not keep many unmapped pages: it frees them after each table that had enough pages. A full
/// table has 512 pages, which is enough.
#[test]
fn a_helper_beside_another_walker_frees_its_pages_after_each_table() {
    const TABLES: u32 = 6;
    let (host, gate) = gated(|event| event == Event::Begin(Phase::Unmap));
    let entered = host.enter(CpuId(1));
    let mm = manager(&host);
    let spaces = Spaces::new(&host, &Design::OURS, 0).expect("countable");
    let memory = Memory::new(&host, &mm, &spaces);
    let space = AddressSpace::new(memory).expect("there is memory");
    let pages = u64::from(TABLES) * 512;
    let request = MapRequest::anonymous(Place::Fixed(Vpn(512)), pages);
    space.map(memory, request).expect("nothing is mapped there");
    let filled = space.populate(memory, Vpn(512)..Vpn(512 + pages));
    filled.expect("there is memory");
    drop(entered);
    // CPU 0 stops at a moment when its thread, the last user, counts as a walker (a thread that
    // empties the address space) but has claimed no table yet.
    let ended = gate.run(&host, || space.exit(memory), || space.try_reap(memory));
    assert_eq!(ended, (Ok(Exited::Finished), Reaped::All));
    assert_eq!(gate.steps.load(Relaxed), TABLES, "a step for each table");
    let _entered = host.enter(CpuId(0));
    assert_eq!(space.destroy(&host), Ok(()));
}

/// A listener (Linux: an MMU notifier), which is notified before ranges are unmapped, and counts
/// them.
struct Listener(Arc<AtomicU32>);

impl Notified<Host> for Listener {
    fn start(&self, _: &Host, _: &Range<Vpn>, _: bool) -> Result<(), Refused> {
        self.0.fetch_add(1, Relaxed);
        Ok(())
    }

    fn end(&self, _: &Host, _: &Range<Vpn>) {}

    fn release(&self, _: &Host) {}
}

/// A write fault that found no page allocates one. If another CPU maps the page of the file in the
/// meantime, a listener, such as a device, may use that page. So the fault must notify the listener
/// before it puts its own page there.
#[test]
fn a_page_of_a_file_that_was_mapped_during_a_write_fault_is_announced() {
    const START: u64 = 512;
    let (host, gate) = gated(|event| matches!(event, Event::PageAlloc { .. }));
    let entered = host.enter(CpuId(1));
    let mm = manager(&host);
    let spaces = Spaces::new(&host, &Design::OURS, 0).expect("countable");
    let memory = Memory::new(&host, &mm, &spaces);
    let announced = Arc::new(AtomicU32::new(0));
    let space = AddressSpace::new(memory).expect("there is memory");
    let space = space.notifying(Listener(Arc::clone(&announced)));
    let file = Arc::new(Object::new(&host, ObjectKind::File));
    let request = MapRequest {
        place: Place::Fixed(Vpn(START)),
        pages: 10,
        backing: Backing::PrivateFile {
            file: Arc::clone(&file),
            offset: 0,
        },
    };
    space.map(memory, request).expect("nothing is mapped there");
    let touch = |page, access| {
        let faulted = space.fault(memory, page, access);
        faulted.expect("there is memory");
        space.frame_of(&host, page)
    };
    // After this read the page table exists, so the write fault allocates nothing but its page.
    touch(Vpn(START), Access::Read);
    let page = Vpn(START + 5);
    drop(entered);
    let (written, read) = gate.run(
        &host,
        || touch(page, Access::Write),
        || touch(page, Access::Read),
    );
    assert_ne!(written, read, "the process has its own copy");
    let _entered = host.enter(CpuId(0));
    assert_eq!(announced.load(Relaxed), 1, "the page of the file has left");
    space.exit(memory).expect("no thread ended it before");
    assert_eq!(space.destroy(&host), Ok(()));
    file.empty(&host, mm.pages());
}

/// If another CPU maps the page first, a fault frees the page that it has allocated, and takes back
/// the charge to the budget.
#[test]
fn a_page_that_another_fault_made_needless_is_uncharged() {
    let (host, gate) = gated(|event| matches!(event, Event::PageAlloc { .. }));
    let entered = host.enter(CpuId(1));
    let mm = manager(&host);
    let spaces = Spaces::new(&host, &Design::OURS, 0).expect("countable");
    let memory = Memory::new(&host, &mm, &spaces);
    let budget = Arc::new(Budget::new(&host, 100));
    let space = AddressSpace::new(memory).expect("there is memory");
    let space = space.limited(Arc::clone(&budget));
    let request = MapRequest::anonymous(Place::Fixed(Vpn(512)), 10);
    space.map(memory, request).expect("nothing is mapped there");
    let touch = |page| space.fault(memory, Vpn(page), Access::Write);
    // After this touch the page table exists, so each fault below allocates nothing but its page.
    touch(512).expect("there is memory");
    drop(entered);
    let faulted = gate.run(&host, || touch(515), || touch(515));
    let mapped = Faulted::Mapped { swapped: false };
    assert_eq!(faulted, (Ok(Faulted::Already), Ok(mapped)));
    let _entered = host.enter(CpuId(0));
    assert_eq!(budget.used(&host), 2, "two pages are resident");
    space.exit(memory).expect("no thread ended it before");
    assert_eq!(budget.used(&host), 0);
    assert_eq!(space.destroy(&host), Ok(()));
}
