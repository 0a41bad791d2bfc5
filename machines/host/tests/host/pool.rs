//! Tests of pools: the settings of the builder, the settings that it refuses, and the handle of a
//! thread.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_host::Host;
#[cfg(target_os = "linux")]
use plimsoll_host::affinity::CpuMask;
use plimsoll_host::pool::{BuildError, CPUS_MAX, EnterError, PAGES_DEFAULT, Pool, Upkeep};
use plimsoll_mm::counter::{CounterSpec, Counting, NamedCounters, NamedError};
use plimsoll_mm::event::Event;
use plimsoll_mm::page::{FreeError, Layout, LayoutError, Request};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::tunables::Knob;
use plimsoll_mm::units::{CpuId, NodeId, Order, Pages, Pfn};

const SINGLE: Request = Request::new(Order::ZERO);

/// Returns the text of the error, which tells an embedder what to change.
fn refusal(pool: Result<Pool, BuildError>) -> String {
    pool.expect_err("it must be refused").to_string()
}

fn spec(name: &'static str) -> CounterSpec {
    CounterSpec {
        name,
        unit: "things",
    }
}

#[test]
fn the_defaults_are_as_documented() {
    let pool = Pool::builder().build().expect("64 MiB of address space");
    assert_eq!(pool.arena().pages(), PAGES_DEFAULT);
    assert_eq!(pool.pages().view(pool.host()).len(), 1);
    assert_eq!(pool.pages().tunable(pool.host(), Knob::StatInterval), 1000);
    assert!(pool.counters().is_none());
    assert!(pool.panicked().is_none());
}

#[test]
fn pages_are_divided_into_nodes_of_whole_blocks() {
    let zones = |pages, nodes| {
        let pool = Pool::builder().cpus(1).pages(Pages(pages)).nodes(nodes);
        let pool = pool.build().expect("it can be divided");
        let view = pool.pages().view(pool.host());
        let zones = view.iter().map(|zone| (zone.node.0, zone.managed.0));
        zones.collect::<Vec<_>>()
    };
    assert_eq!(zones(1, 1), [(0, 1)]);
    assert_eq!(zones(4096, 2), [(0, 2048), (1, 2048)]);
    assert_eq!(zones(5000, 2), [(0, 3072), (1, 1928)]);
    assert_eq!(zones(2049, 3), [(0, 1024), (1, 1024), (2, 1)]);
    for nodes in 1..=16 {
        let sizes = zones(PAGES_DEFAULT.0, nodes);
        let sizes = sizes.into_iter().map(|(_, pages)| pages);
        let [least, most] = [sizes.clone().min(), sizes.clone().max()].map(Option::unwrap);
        assert_eq!(sizes.sum::<u32>(), PAGES_DEFAULT.0, "no page is left out");
        assert!(
            most - least <= 1024,
            "{nodes} nodes: from {least} to {most} pages"
        );
    }
    let pool = Pool::builder().cpus(1).pages(Pages(4096)).nodes(2);
    let pool = pool.build().expect("two nodes");
    let there = SINGLE.from_node(NodeId(1));
    let pfn = pool.bind().alloc(there).expect("a fresh node has pages");
    assert!(pfn.0 >= 2048, "a request may choose its node");
}

#[test]
fn wrong_settings_are_refused_with_advice() {
    let of = || Pool::builder().cpus(1);
    let text = refusal(of().pages(Pages(2048)).nodes(3).build());
    assert!(text.contains("cannot be divided into 3 nodes"), "{text}");
    let text = refusal(of().nodes(0).build());
    assert!(text.contains("use 1 to 1024 nodes"), "{text}");
    let text = refusal(of().nodes(u32::MAX).build());
    assert!(text.contains("use 1 to 1024 nodes"), "{text}");
    let none = of().pages(Pages::ZERO).build();
    assert!(matches!(
        none,
        Err(BuildError::Layout(LayoutError::NoPages(0)))
    ));
    let text = refusal(of().pages(Pages(u32::MAX)).build());
    assert!(text.contains("make it two zones"), "{text}");
    let text = refusal(of().layout(Layout::of([])).build());
    assert!(text.contains("at least one zone"), "{text}");
    let text = refusal(of().knob(Knob::HighFraction, 3).build());
    assert!(text.contains("0, or 8 to"), "{text}");
    let text = refusal(Pool::builder().cpus(0).build());
    assert!(text.contains("at least 1"), "{text}");
    // Memory for this many CPUs would be more than a computer has. The builder must refuse before
    // it allocates anything.
    for cpus in [CPUS_MAX + 1, u32::MAX] {
        let text = refusal(Pool::builder().cpus(cpus).build());
        assert!(text.contains("at most 65536 to `cpus`"), "{text}");
    }
    let text = refusal(of().host(Host::new()).build());
    assert!(text.contains("not to the builder"), "{text}");
    let text = refusal(of().counter(spec("two words")).build());
    assert!(text.contains("letters, digits and `_`"), "{text}");
    let text = refusal(of().counter(spec("one")).counter(spec("one")).build());
    assert!(text.contains("give each its own name"), "{text}");
    let host = Host::with_topology(Topology::flat(1));
    let first = Pool::builder()
        .host(host.clone())
        .build()
        .expect("no workers yet");
    let text = refusal(Pool::builder().host(host.clone()).build());
    assert!(text.contains("`Upkeep::ByEmbedder`"), "{text}");
    let second = Pool::builder().host(host).upkeep(Upkeep::ByEmbedder);
    second.build().expect("it needs no workers");
    drop(first);
}

#[test]
fn a_cpu_that_does_not_exist_cannot_be_entered() {
    let pool = Pool::builder().cpus(2).build().expect("a small pool");
    let refused = pool.enter(CpuId(2)).map(drop);
    let error = refused.expect_err("there are CPUs 0 and 1");
    assert_eq!(
        error.to_string(),
        "there is no CPU 2: the pool's machine has CPUs 0 to 1"
    );
    let pinned = pool.enter_pinned(CpuId(2)).map(drop);
    assert!(matches!(pinned, Err(EnterError::NoSuchCpu { cpus: 2, .. })));
}

#[test]
fn a_bound_thread_uses_its_cpu_and_gets_errors_as_values() {
    let heard = Arc::new(AtomicU64::new(0));
    let ear = Arc::clone(&heard);
    let observer = move |cpu, _at, event| {
        if let Event::PageAlloc { .. } = event {
            assert_eq!(cpu, CpuId(1), "the thread plays this CPU");
            ear.fetch_add(1, Relaxed);
        }
    };
    let pool = Pool::builder()
        .cpus(2)
        .pages(Pages(2048))
        .observer(observer);
    let pool = pool.build().expect("a small pool");
    let here = pool.enter(CpuId(1)).expect("there is CPU 1");
    assert_eq!(
        (here.cpu(), here.pool().arena().pages()),
        (CpuId(1), Pages(2048))
    );
    let pfn = here.alloc(SINGLE).expect("there are pages");
    here.free(pfn, Order::ZERO).expect("it was handed out");
    let twice = here.free(pfn, Order::ZERO);
    assert_eq!(twice, Err(FreeError::NotAllocated(pfn)));
    let mut many = [Pfn(u32::MAX); 3000];
    let error = here
        .alloc_pages(SINGLE, &mut many)
        .expect_err("there are fewer");
    assert!(error.got < 2048 && error.wanted == 3000, "{error}");
    assert_eq!(heard.load(Relaxed), 1 + error.got as u64);
    let (got, rest) = many.split_at(error.got);
    assert!(
        rest.iter().all(|&pfn| pfn == Pfn(u32::MAX)),
        "nothing else is written"
    );
    here.free_pages(got).expect("they were handed out");
    let block = here
        .alloc(Request::new(Order::HUGE))
        .expect("all pages are free");
    here.split(block, Order::HUGE).expect("it was handed out");
    let parts: Vec<Pfn> = (block.0..block.0 + 512).map(Pfn).collect();
    here.free_pages(&parts).expect("they are single pages now");
    assert!(here.drain() > Pages::ZERO);
    let few = here.alloc_bulk(SINGLE, &mut many[..10]);
    assert_eq!(few, 10);
    here.free_pages(&many[..10]).expect("they were handed out");
    pool.pages().drain_all_sync(pool.host());
    assert_eq!(
        pool.pages().view(pool.host())[0].free,
        Pages(2048),
        "no page is lost"
    );
}

/// The drain of a thread's handle returns the pages of the CPU that the thread plays, and leaves
/// those of other CPUs alone.
#[test]
fn a_drain_of_one_cpu_leaves_the_others_alone() {
    let pool = Pool::builder().cpus(2).upkeep(Upkeep::ByEmbedder);
    let pool = pool.build().expect("64 MiB of address space");
    let fill = |cpu| {
        let here = pool.enter(cpu).expect("there is such a CPU");
        let held = [(); 5].map(|()| here.alloc(SINGLE).expect("a fresh pool has pages"));
        here.free_pages(&held).expect("they were handed out");
    };
    fill(CpuId(1));
    fill(CpuId(0));
    let listed = |cpu| pool.pages().listed(pool.host(), CpuId(cpu));
    let [own, other] = [listed(0), listed(1)];
    assert!(own >= Pages(5) && other >= Pages(5));
    let here = pool.enter(CpuId(0)).expect("there is CPU 0");
    assert_eq!(here.drain(), own);
    assert_eq!([listed(0), listed(1)], [Pages::ZERO, other]);
}

#[test]
fn named_counters_count_on_all_cpus() {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "last_of_10"];
    let pool = names
        .into_iter()
        .fold(Pool::builder().cpus(4), |pool, name| {
            pool.counter(spec(name))
        });
    let pool = pool.build().expect("a small pool");
    let last = pool.counter("last_of_10").expect("it was named");
    assert_eq!(pool.counter("none"), None);
    thread::scope(|scope| {
        for cpu in (0..4).map(CpuId) {
            let pool = &pool;
            scope.spawn(move || {
                let here = pool.enter(cpu).expect("there are 4 CPUs");
                (0..10_000).for_each(|_| here.count(last, 1));
            });
        }
    });
    let (host, counters) = (pool.host(), pool.counters().expect("they were named"));
    assert_eq!(counters.precise(host, last), 40_000);
    assert!(counters.range(host, last).contains(40_000));
    assert_eq!(counters.spec(last), spec("last_of_10"));
    let approximate = counters
        .list_approximate(host)
        .last()
        .expect("there are 10");
    assert!(counters.range(host, last).contains(40_000));
    assert!(
        counters.range(host, last).contains(approximate.value),
        "{approximate:?}"
    );
    let text: Vec<String> = pool.vmstat().map(|row| row.to_string()).collect();
    let free = u64::from(PAGES_DEFAULT.0);
    assert_eq!(text[0], format!("nr_free_pages {free}"));
    let expected = [
        "nr_zone_anon 0",
        "nr_anon_pages 0",
        "nr_page_table_pages 0",
        "a 0",
    ];
    assert_eq!(text[1..5], expected);
    assert_eq!(text[13], "last_of_10 40000");
}

#[test]
fn counters_of_every_variant_are_made_and_destroyed() {
    let host = Host::with_topology(Topology::flat(2));
    for counting in Counting::ALL {
        let specs = [spec("one"), spec("two")];
        let counters = NamedCounters::new(&host, counting, &specs).expect("two counters");
        let two = counters.find("two").expect("it was named");
        counters.add(&host, two, -3);
        let values = counters.list(&host).map(|row| row.value);
        assert_eq!(values.collect::<Vec<_>>(), [0, -3]);
        counters.destroy(&host);
    }
    // Memory for counters is allocated in whole groups, so ten counters leave room unused in the
    // last group. An id that refers to this unused room must be refused too.
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"].map(spec);
    let twelve = NamedCounters::new(&host, Counting::Flat, &names).expect("twelve counters");
    let ten = NamedCounters::new(&host, Counting::Flat, &names[..10]).expect("ten counters");
    let [tenth, eleventh] = ["j", "k"].map(|name| twelve.find(name).expect("it was named"));
    ten.add(&host, tenth, 1);
    assert_eq!(ten.precise(&host, tenth), 1, "an id is only a number");
    let added = panic::catch_unwind(AssertUnwindSafe(|| ten.add(&host, eleventh, 1)));
    added.expect_err("there are only ten");
    let none = NamedCounters::new(&host, Counting::Flat, &[]).map(drop);
    assert_eq!(none, Err(NamedError::Empty));
}

#[test]
#[cfg(target_os = "linux")]
fn a_populated_pool_is_resident() {
    let pool = Pool::builder().cpus(1).pages(Pages(100)).populate();
    let pool = pool.build().expect("400 KiB");
    let resident = pool.arena().resident().expect("the kernel says");
    assert_eq!(resident, Pages(100));
}

#[test]
#[cfg(target_os = "linux")]
fn a_thread_is_pinned_only_while_it_is_bound_so() {
    let pool = Pool::builder().cpus(1).pages(Pages(100));
    let pool = pool.build().expect("400 KiB");
    let mask = || CpuMask::of_this_thread().cpus().to_vec();
    let all = mask();
    let pinned = pool.enter_pinned(CpuId(0)).expect("CPU 0 exists");
    assert_eq!(mask().len(), 1, "of {all:?}");
    drop(pinned);
    assert_eq!(mask(), all);
}

#[test]
fn the_threads_of_a_pool_do_its_periodic_work() {
    let build = |upkeep| {
        let pool = Pool::builder().cpus(1).pages(Pages(100)).upkeep(upkeep);
        let pool = pool.knob(Knob::StatInterval, 10).build();
        let pool = pool.expect("400 KiB");
        pool.bind().alloc(SINGLE).expect("a fresh pool has pages");
        pool
    };
    let is_dirty = |pool: &Pool| pool.manager().is_dirty(pool.host(), CpuId(0));
    assert!(is_dirty(&build(Upkeep::ByEmbedder)), "nothing folds there");
    let pool = build(Upkeep::Threads);
    let end = Instant::now() + Duration::from_secs(60);
    while is_dirty(&pool) {
        assert!(Instant::now() < end, "the differentials are never folded");
        thread::sleep(Duration::from_millis(10));
    }
}
