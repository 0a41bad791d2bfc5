//! Tests three ways to get the number of pages that killing a process would free: an approximate
//! reading, a precise sum, and one call for many processes. They must agree.

use std::sync::Arc;

use plimsoll_host::Host;
use plimsoll_mm::Manager;
use plimsoll_mm::counter::{Counting, Range, Reading};
use plimsoll_mm::design::Design;
use plimsoll_mm::laws::cast;
use plimsoll_mm::oom::{
    Candidates, Census, Facts, Kind, OomKiller, Outcome, Patience, Scope, Selecting, Selection,
    Slot, TotalPages,
};
use plimsoll_mm::page::{Config, Layout};
use plimsoll_mm::space::rss::RssKind;
use plimsoll_mm::space::{Access, AddressSpace, MapRequest, Memory, Place, Spaces};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Pages, Vpn};

const CPUS: u32 = 64;
const SPACES: u64 = 90;
/// The index of the process that has exited.
const GONE: u32 = 30;

/// Touches adjacent pages on several CPUs and swaps out a few of them. Then touches pages that are
/// far apart, so that each has a separate page table. The fewer adjacent pages a process has, the
/// more page tables it has. So the first process has the fewest pages if page tables are not
/// counted, and the most if they are counted.
fn touch(space: &AddressSpace<Host>, memory: Memory<'_, Host>, nth: u64) {
    let map = |pages| {
        let request = MapRequest::anonymous(Place::Highest, pages);
        space.map(memory, request).expect("there is room").start
    };
    let more = nth * 7 % SPACES;
    let far = (SPACES - more) * 4 / 5;
    let (heap, tables) = (map(2048), map(512 * SPACES));
    let near = (0..60 + more).map(|page| heap.0 + page);
    let apart = (0..far).map(|table| tables.0 + 512 * table);
    for (nth, page) in (0..).zip(near.chain(apart)) {
        let _entered = memory.machine.enter(CpuId(nth % 8));
        let touched = space.fault(memory, Vpn(page), Access::Write);
        touched.expect("it is mapped");
    }
    space.swap_out(memory, heap..Vpn(heap.0 + nth % 9));
}

#[test]
fn the_most_is_found_by_usage_however_pages_are_counted() {
    for counting in Counting::ALL {
        let design = Design {
            counting,
            ..Design::OURS
        };
        let host = Host::with_topology(Topology::flat(CPUS));
        let _entered = host.enter(CpuId(0));
        let mut config = Config::new(Layout::arena(Pages(1 << 15)));
        config.design = design;
        let manager = Manager::new(&host, config).expect("an arena is a layout");
        let spaces = Spaces::new(&host, &design, 4096).expect("countable");
        let memory = Memory::new(&host, &manager, &spaces);
        let killer = OomKiller::new(&host, (), Patience::LINUX);
        let processes: Vec<_> = (0..SPACES)
            .map(|nth| {
                let space = AddressSpace::new(memory).expect("there is memory");
                touch(&space, memory, nth);
                let id = u32::try_from(nth).expect("few");
                cast::enroll(&host, &killer, id, Kind::Process, Some(Arc::new(space)))
            })
            .collect();
        let gone = killer.exit(memory, &processes[GONE as usize]);
        gone.expect("it is there");
        let census = Census::new(&host, &processes);
        every_way_says_the_same(&host, &census);
        the_most_is_found(&census, counting);
    }
}

fn the_most_is_found(census: &Census<'_, Host>, counting: Counting) {
    let sums = (0..census.len()).map(|nth| (census.precise(nth), nth));
    let most = sums.max().expect("there is a space").1;
    assert_eq!(most, 0, "it has most tables");
    for selecting in [Selecting::Precise, Selecting::Bounded] {
        let selection = select(census, selecting);
        assert_eq!(
            chosen(&selection),
            Some(most),
            "{counting:?}, {selecting:?}"
        );
        let selection = select(&Blurred(census), selecting);
        assert_eq!(
            chosen(&selection),
            Some(most),
            "{counting:?}, {selecting:?}"
        );
        let together = selecting == Selecting::Bounded && census.batch_gain() > 1;
        assert_eq!(selection.batches > 0, together, "{counting:?}");
    }
}

fn select(candidates: &impl Candidates, selecting: Selecting) -> Selection {
    let scope = Scope::machine(TotalPages::new(1 << 15).expect("some"));
    let mut slots = vec![Slot::EMPTY; candidates.len() as usize];
    let selection = selecting.select(candidates, &scope, &mut slots);
    selection.expect("readings are in order")
}

fn chosen(selection: &Selection) -> Option<u32> {
    match selection.outcome {
        Outcome::Victim(victim) => Some(victim.candidate),
        Outcome::Nobody(_) => None,
    }
}

/// The processes of a census (the list of candidates for a kill), with approximate readings that
/// carry no information. So a selection needs the precise sums of all processes. The selection sums
/// the last 16 processes one by one, and all earlier ones together.
struct Blurred<'a>(&'a Census<'a, Host>);

impl Candidates for Blurred<'_> {
    fn len(&self) -> u32 {
        self.0.len()
    }

    fn facts(&self, candidate: u32) -> Option<Facts> {
        self.0.facts(candidate)
    }

    fn approximate(&self, candidate: u32) -> Option<Reading> {
        let range = Range {
            min: 0,
            max: 1 << 20,
        };
        let reading = self.0.approximate(candidate)?;
        Some(Reading { range, ..reading })
    }

    fn precise(&self, candidate: u32) -> Option<i64> {
        self.0.precise(candidate)
    }

    fn precise_many(&self, slots: &mut [Slot]) {
        self.0.precise_many(slots);
    }

    fn batch_gain(&self) -> u32 {
        self.0.batch_gain()
    }
}

/// Checks that the sums by kind, the precise sums, the approximate readings and the candidates of a
/// census agree.
fn every_way_says_the_same(host: &Host, census: &Census<'_, Host>) {
    for (nth, process) in (0..).zip(census.processes()) {
        let Some(space) = process.space(host) else {
            assert_eq!((nth, census.precise(nth)), (GONE, None));
            continue;
        };
        let kinds = RssKind::ALL.map(|kind| space.rss().precise(host, kind));
        let pages = kinds.iter().sum::<u64>() + space.table_pages(host);
        let pages = i64::try_from(pages).expect("few");
        assert_eq!(space.usage_precise(host), pages);
        assert_eq!(census.precise(nth), Some(pages));
        let about = RssKind::ALL.map(|kind| space.rss().approximate(host, kind));
        let about = about.iter().sum::<u64>() + space.table_pages(host);
        let about = i64::try_from(about).expect("few");
        let candidate = census.approximate(nth).expect("it is there");
        for reading in [space.usage(host), candidate] {
            assert!(
                reading.is_ordered() && reading.range.contains(pages),
                "{reading:?}, {pages}"
            );
            assert_eq!(reading.estimate, about, "{reading:?}");
        }
    }
}
