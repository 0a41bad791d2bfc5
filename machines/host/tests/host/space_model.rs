//! Each test compares an address space with a model. Random operations must return the same results
//! from both. After each operation, also after a refused one, both must have the same observable
//! state.

use crate::support;

use std::ops::Range;

use plimsoll_mm::counter::Counting;
use plimsoll_mm::design::Design;
use plimsoll_mm::space::reap::Reaping;
use plimsoll_mm::space::{Access, MapError, Place};
use plimsoll_mm::units::{CpuId, Vpn};
use proptest::prelude::*;
use support::model::{Model, Refused};
use support::world::{Sizes, What, World, seen};

/// The first page of the addresses that the random operations use. Half of these addresses, four
/// page tables, are below the border between two upper tables; the other half is above it.
const BASE: u64 = (1 << 18) - 4 * 512;
const SPAN: u64 = 8 * 512;

/// The page on which a random operation acts: a page number, or an offset in one of the current
/// mappings, which is selected by its index.
#[derive(Clone, Copy, Debug)]
enum At {
    Page(u64),
    In(usize, u64),
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Map(Place, u64, What),
    Unmap(At, u64),
    Fault(At, Access),
    Populate(At, u64),
    SwapOut(At, u64),
}

fn page() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => (0..SPAN / 512).prop_map(|table| BASE + table * 512),
        2 => (0..SPAN).prop_map(|page| BASE + page),
        1 => (0..SPAN / 32).prop_map(|page| BASE + page * 32),
    ]
}

fn at() -> impl Strategy<Value = At> {
    prop_oneof![
        2 => page().prop_map(At::Page),
        3 => (any::<usize>(), 0..2000_u64).prop_map(|(nth, behind)| At::In(nth, behind)),
    ]
}

fn len() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 1..40_u64,
        3 => Just(512_u64),
        1 => Just(1024_u64),
        2 => 1..1200_u64,
    ]
}

fn place() -> impl Strategy<Value = Place> {
    prop_oneof![
        1 => Just(Place::Lowest),
        1 => Just(Place::Highest),
        4 => page().prop_map(|page| Place::Fixed(Vpn(page))),
        3 => page().prop_map(|page| Place::Replace(Vpn(page))),
    ]
}

fn what() -> impl Strategy<Value = What> {
    prop_oneof![
        3 => any::<bool>().prop_map(|huge| What::Anonymous { huge }),
        2 => (0..100_u64).prop_map(|offset| What::File { offset }),
        1 => (0..100_u64).prop_map(|offset| What::Shared { offset }),
        2 => Just(What::Reserved),
        1 => any::<u32>().prop_map(|first| What::Frames { first: first / 2 }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let access = prop_oneof![Just(Access::Read), Just(Access::Write)];
    prop_oneof![
        5 => (place(), len(), what()).prop_map(|(place, len, what)| Step::Map(place, len, what)),
        3 => (at(), len()).prop_map(|(at, len)| Step::Unmap(at, len)),
        6 => (at(), access).prop_map(|(at, access)| Step::Fault(at, access)),
        4 => (at(), len()).prop_map(|(at, len)| Step::Populate(at, len)),
        3 => (at(), len()).prop_map(|(at, len)| Step::SwapOut(at, len)),
    ]
}

fn sizes() -> impl Strategy<Value = Sizes> {
    let limit = || prop_oneof![Just(u64::MAX), 0..3000_u64];
    let limits = (limit(), limit(), limit());
    let swap = prop_oneof![Just(0_u32), 1..40_u32, Just(5000_u32)];
    (limits, swap, 3..14_u32).prop_map(|((own, group, top), swap, mappings)| {
        let others = 100;
        Sizes {
            memory: 1 << 17,
            swap,
            mappings,
            limits: [
                own,
                group.saturating_add(others),
                top.saturating_add(others),
            ],
            others,
        }
    })
}

fn design() -> impl Strategy<Value = Design> {
    let reaping = prop::sample::select(Reaping::ALL.to_vec());
    let counting = prop::sample::select(Counting::ALL.to_vec());
    (reaping, counting).prop_map(|(reaping, counting)| Design {
        reaping,
        counting,
        ..Design::OURS
    })
}

struct Both {
    world: World,
    model: Model,
}

impl Both {
    fn page(&self, at: At) -> u64 {
        match at {
            At::Page(page) => page,
            At::In(nth, behind) => match self.model.nth(nth) {
                Some(mapping) => mapping.start + behind % (mapping.end - mapping.start),
                None => BASE + behind,
            },
        }
    }

    fn range(&self, at: At, len: u64) -> Range<u64> {
        let start = self.page(at);
        start..start + len
    }

    fn step(&mut self, step: Step) {
        let memory = self.world.memory();
        let space = &self.world.space;
        match step {
            Step::Map(place, pages, what) => {
                let mapped = self.world.map(place, pages, what);
                let mapped = mapped.map(|vma| seen(&vma)).map_err(|why| match why {
                    MapError::Overlaps(vma) => Refused::Overlaps(seen(&vma)),
                    why => Refused::Other(why),
                });
                assert_eq!(mapped, self.model.map(place, pages, what));
            }
            Step::Unmap(at, pages) => {
                let start = self.page(at);
                let unmapped = space.unmap(memory, Vpn(start), pages);
                assert_eq!(unmapped, self.model.unmap(start, pages));
            }
            Step::Fault(at, access) => {
                let page = self.page(at);
                let faulted = space.fault(memory, Vpn(page), access);
                assert_eq!(faulted, self.model.fault(page, access));
            }
            Step::Populate(at, pages) => {
                let range = self.range(at, pages);
                let populated = space.populate(memory, Vpn(range.start)..Vpn(range.end));
                assert_eq!(populated, self.model.populate(range));
            }
            Step::SwapOut(at, pages) => {
                let range = self.range(at, pages);
                let went = space.swap_out(memory, Vpn(range.start)..Vpn(range.end));
                assert_eq!(went, self.model.swap_out(range));
            }
        }
        assert_eq!(self.world.state(), self.model.state(), "after {step:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn an_address_space_is_what_its_model_is(
        steps in prop::collection::vec(step(), 1..60),
        sizes in sizes(),
        design in design(),
    ) {
        let mut both = Both {
            world: World::new(design, sizes),
            model: Model::new(sizes),
        };
        let _entered = both.world.host.enter(CpuId(0));
        for step in steps {
            both.step(step);
        }
        both.world.end();
    }
}
