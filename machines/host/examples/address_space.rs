//! A process maps memory, touches it, and exits while another thread helps to empty its memory.
//!
//! `cargo run --release -p plimsoll-host --example address_space`
#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use std::error::Error;
use std::sync::Arc;
use std::thread;

use plimsoll_host::Host;
use plimsoll_mm::Manager;
use plimsoll_mm::design::Design;
use plimsoll_mm::page::{Config, Layout};
use plimsoll_mm::space::budget::Budget;
use plimsoll_mm::space::object::{Object, ObjectKind};
use plimsoll_mm::space::reap::Reaped;
use plimsoll_mm::space::rss::RssKind;
use plimsoll_mm::space::{
    Access, AddressSpace, Backing, Exited, FaultError, MapRequest, Memory, Place, Spaces,
};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Pages, Vpn};
use plimsoll_mm::vmstat::counters::ZoneItem;

/// The number of pages of the machine: 64 MiB. The manager hands out only page numbers, so this
/// example needs no real memory for the pages.
const MACHINE: Pages = Pages(64 << 8);
/// The budget of the process, in pages: 16 MiB.
const LIMIT: u64 = 4096;

fn main() -> Result<(), Box<dyn Error>> {
    let host = Host::with_topology(Topology::flat(2));
    let manager = Manager::new(&host, Config::new(Layout::arena(MACHINE)))?;
    let spaces = Spaces::new(&host, &Design::OURS, 1024)?;
    let memory = Memory::new(&host, &manager, &spaces);
    let _cpu = host.enter(CpuId(0));

    let budget = Arc::new(Budget::new(&host, LIMIT));
    let space = AddressSpace::new(memory)?.limited(Arc::clone(&budget));
    let file = Arc::new(Object::new(&host, ObjectKind::File));
    let heap = space.map(memory, request(8192, Backing::Anonymous { huge: false }))?;
    let text = space.map(
        memory,
        request(
            16,
            Backing::PrivateFile {
                file: Arc::clone(&file),
                offset: 0,
            },
        ),
    )?;
    println!(
        "mapped {} and {} pages; none is resident",
        heap.pages(),
        text.pages()
    );

    // Read from the file, then write: the write gives the process a private copy of the page.
    space.fault(memory, text.start, Access::Read)?;
    space.fault(memory, text.start, Access::Write)?;
    // Touch the heap until the budget refuses a page.
    let touched = touch_all(&space, memory, heap.start);
    println!("{touched} pages of the heap fit into {LIMIT}; some of them go to swap");
    let swapped = space.swap_out(memory, heap.start..Vpn(heap.start.0 + 1000));
    show(&space, &host);
    assert_eq!(swapped, 1000);
    // A page that was swapped out is read back when it is touched.
    space.fault(memory, heap.start, Access::Read)?;

    // The process exits on one CPU. A helper on the other CPU empties the memory of the process at
    // the same time, as the OOM reaper would.
    let (exited, reaped) = thread::scope(|scope| {
        let helper = scope.spawn(|| {
            let _cpu = host.enter(CpuId(1));
            space.try_reap(Memory::new(&host, &manager, &spaces))
        });
        let exited = space.exit(memory);
        (exited, helper.join().expect("the helper does not panic"))
    });
    match exited? {
        Exited::Finished => println!("the last user was the last to leave"),
        Exited::LeftToHelpers => println!("the helper was the last to leave"),
    }
    assert_eq!(reaped, Reaped::All);
    assert_eq!((budget.used(&host), space.table_pages(&host)), (0, 0));
    space.destroy(&host)?;
    file.empty(&host, manager.pages());
    assert_eq!(manager.pages().counted(&host, ZoneItem::Anon), 0);
    println!("every page is back");
    Ok(())
}

/// Returns a request that places a mapping in the highest gap that is large enough. Linux places
/// the mappings of programs in the same way.
fn request(pages: u64, backing: Backing<Host>) -> MapRequest<Host> {
    MapRequest {
        place: Place::Highest,
        pages,
        backing,
    }
}

/// Touches page after page until the budget refuses a page. Returns the number of touched pages.
fn touch_all(space: &AddressSpace<Host>, memory: Memory<'_, Host>, from: Vpn) -> u64 {
    let mut touched = 0;
    loop {
        match space.fault(memory, Vpn(from.0 + touched), Access::Write) {
            Ok(_) => touched += 1,
            Err(FaultError::OverBudget(over)) => {
                println!("refused: {over}");
                return touched;
            }
            Err(error) => panic!("the machine has more than the budget: {error}"),
        }
    }
}

fn show(space: &AddressSpace<Host>, host: &Host) {
    let pages = |kind| space.rss().precise(host, kind);
    println!(
        "resident: {} anonymous, {} of files; {} in swap; {} of page tables",
        pages(RssKind::Anon),
        pages(RssKind::File),
        pages(RssKind::Swap),
        space.table_pages(host)
    );
}

#[test]
fn it_runs() -> Result<(), Box<dyn Error>> {
    main()
}
