//! The pages that killing the user of an address space would give back: as a cheap reading,
//! exactly, and for many address spaces at once.

use plimsoll_host::Host;
use plimsoll_mm::counter::Counting;
use plimsoll_mm::design::Design;
use plimsoll_mm::oom::{Candidates, Facts, Outcome, Reading, Scope, Selecting, Slot, TotalPages};
use plimsoll_mm::page::{Config, Layout};
use plimsoll_mm::space::rss::RssKind;
use plimsoll_mm::space::{Access, AddressSpace, Backing, MapRequest, Memory, Place, Spaces};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Pages, Vpn};
use plimsoll_mm::vmstat::Manager;

const CPUS: u32 = 64;
const SPACES: u64 = 90;
/// The tenant that counts as gone.
const GONE: u32 = 30;

/// Address spaces as candidates for a kill; one of them counts as gone.
struct Tenants<'a> {
    host: &'a Host,
    spaces: &'a [AddressSpace<Host>],
    counting: Counting,
}

impl Tenants<'_> {
    fn space(&self, tenant: u32) -> Option<&AddressSpace<Host>> {
        self.spaces.get(tenant as usize).filter(|_| tenant != GONE)
    }
}

impl Candidates for Tenants<'_> {
    fn len(&self) -> u32 {
        u32::try_from(self.spaces.len()).expect("few")
    }

    fn facts(&self, tenant: u32) -> Option<Facts> {
        self.space(tenant).map(|_| Facts::PROCESS)
    }

    fn approximate(&self, tenant: u32) -> Option<Reading> {
        Some(self.space(tenant)?.usage(self.host))
    }

    fn precise(&self, tenant: u32) -> Option<i64> {
        Some(self.space(tenant)?.usage_precise(self.host))
    }

    fn precise_many(&self, slots: &mut [Slot]) {
        AddressSpace::add_usages(self.host, slots, |tenant| self.space(tenant));
    }

    fn batch_gain(&self) -> u32 {
        self.counting.batch_gain()
    }
}

/// Touches some pages on several CPUs, and swaps a few of them out.
fn touch(space: &AddressSpace<Host>, memory: Memory<'_, Host>, nth: u64) {
    let heap = MapRequest {
        place: Place::Highest,
        pages: 2048,
        backing: Backing::Anonymous { huge: false },
    };
    let heap = space.map(memory, heap).expect("there is room");
    let touched = 60 + nth * 7 % SPACES;
    for page in 0..touched {
        let cpu = u32::try_from(page % 8).expect("few");
        let _entered = memory.machine.enter(CpuId(cpu));
        let page = Vpn(heap.start.0 + page);
        space.fault(memory, page, Access::Write).expect("mapped");
    }
    space.swap_out(memory, heap.start..Vpn(heap.start.0 + nth % 9));
}

#[test]
fn the_most_is_found_by_usage_however_pages_are_counted() {
    for counting in Counting::ALL {
        let design = Design {
            counting,
            ..Design::OURS
        };
        let host = Host::with_topology(Topology::flat(CPUS));
        let mut config = Config::new(Layout::arena(Pages(1 << 15)));
        config.design = design;
        let manager = Manager::new(&host, config).expect("an arena is a layout");
        let spaces = Spaces::new(&host, &design, 4096).expect("countable");
        let memory = Memory::new(&host, &manager, &spaces);
        let tenants: Vec<_> = (0..SPACES)
            .map(|nth| {
                let space = AddressSpace::new(memory).expect("there is memory");
                touch(&space, memory, nth);
                space
            })
            .collect();
        let tenants = Tenants {
            host: &host,
            spaces: &tenants,
            counting,
        };
        every_way_says_the_same(&tenants);
        let scope = Scope::machine(TotalPages::new(1 << 15).expect("some"));
        let most = (0..tenants.len()).max_by_key(|&tenant| (tenants.precise(tenant), tenant));
        for selecting in [Selecting::Precise, Selecting::Bounded] {
            let mut slots = vec![Slot::EMPTY; tenants.spaces.len()];
            let selection = selecting.select(&tenants, &scope, &mut slots);
            let outcome = selection.expect("readings are in order").outcome;
            let chosen =
                matches!(outcome, Outcome::Victim(victim) if Some(victim.candidate) == most);
            assert!(
                chosen,
                "{counting:?}, {selecting:?}: {outcome:?}, not {most:?}"
            );
        }
    }
}

/// Checks that the sums by kind, the cheap reading, the exact sum and the sums of many agree.
fn every_way_says_the_same(tenants: &Tenants<'_>) {
    let host = tenants.host;
    for tenant in (0..tenants.len()).filter(|tenant| *tenant != GONE) {
        let space = tenants.space(tenant).expect("it is there");
        let kinds = RssKind::ALL.map(|kind| space.rss().precise(host, kind));
        let pages = kinds.iter().sum::<u64>() + space.table_pages(host);
        let pages = i64::try_from(pages).expect("few");
        assert_eq!(space.usage_precise(host), pages);
        let reading = space.usage(host);
        assert!(
            reading.is_ordered() && reading.range.contains(pages),
            "{reading:?}, {pages}"
        );
    }
}
