//! The memory manager inside a program: real memory, two threads, and periodic maintenance of page
//! lists and counters.
//!
//! `cargo run -p plimsoll-host --example embed`
#![expect(clippy::print_stdout, reason = "printing is what it is for")]
#![expect(unsafe_code, reason = "writing to a page through its pointer")]

use std::error::Error;
use std::sync::Arc;
use std::thread;

use plimsoll_host::Host;
use plimsoll_host::arena::{Arena, HugePages};
use plimsoll_mm::Manager;
use plimsoll_mm::page::{Config, Layout, Request};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Order, PAGE_SIZE, Pages, Pfn};

/// The number of pages of the arena: 64 MiB.
const PAGES: Pages = Pages(1 << 14);

fn main() -> Result<(), Box<dyn Error>> {
    // Frame `n` of the arena is page `n` of the manager. Nothing else connects the arena and the
    // manager.
    let arena = Arena::new(PAGES, HugePages::AsSystem)?;
    let host = Host::with_topology(Topology::flat(2));
    let mm = Arc::new(Manager::new(&host, Config::new(Layout::arena(PAGES)))?);

    // Worker threads do the periodic maintenance: they add the CPUs' parts of counters to the
    // shared values, and shrink page lists that are too long.
    let upkeep = Arc::clone(&mm);
    let workers = host.start(move |host, job| upkeep.run(host, job))?;
    mm.start(&host);

    thread::scope(|scope| {
        for cpu in [0, 1].map(CpuId) {
            let (arena, host, mm) = (&arena, &host, &mm);
            scope.spawn(move || {
                // This thread plays `cpu`: it uses the page lists of that CPU.
                let _entered = host.enter(cpu);
                use_pages(arena, host, mm, cpu);
            });
        }
    });
    drop(workers);

    // Until a drain, freed pages remain on the page lists of the CPUs that freed them.
    let before = &mm.pages().view(&host)[0];
    println!(
        "after use:   {} free, {} on page lists",
        before.free, before.listed
    );
    mm.pages().drain_all_sync(&host);
    let zone = &mm.pages().view(&host)[0];
    println!(
        "after drain: {} free, {} of them in largest blocks",
        zone.free,
        zone.blocks[10] << 10
    );
    assert_eq!(before.free + before.listed, PAGES, "no page is lost");
    assert_eq!((zone.free, zone.counted_free), (PAGES, u64::from(PAGES.0)));
    assert_eq!(zone.blocks[10], PAGES.0 >> 10, "and all are merged again");
    Ok(())
}

/// Allocates 1000 pages, writes to each, checks that no other thread wrote to them, and frees them.
fn use_pages(arena: &Arena, host: &Host, mm: &Manager<Host>, cpu: CpuId) {
    let request = Request::new(Order::ZERO);
    let take = |_| mm.pages().alloc(host, request).expect("64 MiB is plenty");
    let held: Vec<Pfn> = (0..1000).map(take).collect();
    let mark = u8::try_from(cpu.0 + 1).expect("two CPUs");
    let page_bytes = usize::try_from(PAGE_SIZE).expect("a page is smaller than memory");
    for &pfn in &held {
        // SAFETY: this is a whole frame of a live arena, and only its owner, this thread, writes to
        // it.
        unsafe { arena.page(pfn).write_bytes(mark, page_bytes) };
    }
    for &pfn in &held {
        // SAFETY: this is the first byte of a frame that this thread owns.
        let first = unsafe { arena.page(pfn).read() };
        assert_eq!(first, mark, "no other thread wrote to {pfn:?}");
    }
    let error = mm
        .pages()
        .free(host, held[0], Order::MAX)
        .expect_err("a wrong order");
    println!("CPU {cpu}: a wrong free is refused: {error}");
    mm.pages()
        .free_pages(host, &held)
        .expect("all were handed out");
}

#[test]
fn it_runs() -> Result<(), Box<dyn Error>> {
    main()
}
