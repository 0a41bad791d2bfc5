//! The kinds of address spaces for the tests of one law: code that ends a shortage of memory never
//! asks the heap for memory.

use plimsoll_mm::space::{Access, AddressSpace, Backing};
use plimsoll_mm::units::Vpn;

use crate::support::lives::{change, fill, touch};
use crate::support::machine::Plain;
use crate::support::world::World;

/// What a test maps in an address space before it ends the space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Nothing is mapped.
    Empty,
    /// A mapping without pages.
    Bare,
    /// A few pages. Freeing them needs no memory for a batch of the gather (Linux: `mmu_gather`).
    Small,
    /// One page in each of many page tables.
    Sparse,
    /// One mapping with so many pages that freeing them takes several batches of the gather (Linux:
    /// `mmu_gather`).
    Large,
    /// Huge pages, one of which was partly unmapped again.
    Huge,
    /// Memory of every kind.
    Full,
    /// Memory of every kind, parts of which were swapped out, unmapped and replaced.
    Changed,
}

impl Form {
    pub(super) const ALL: [Self; 8] = [
        Self::Empty,
        Self::Bare,
        Self::Small,
        Self::Sparse,
        Self::Large,
        Self::Huge,
        Self::Full,
        Self::Changed,
    ];

    /// Maps and touches memory of this form in an empty address space.
    pub(super) fn fill(self, world: &World, space: &AddressSpace<Plain>) {
        let anonymous = |start, pages, huge| {
            let mapped = world.map(space, start, pages, Backing::Anonymous { huge });
            assert!(mapped, "there is memory");
        };
        let populate = |start, end| {
            let filled = space.populate(world.memory(), Vpn(start)..Vpn(end));
            filled.expect("there is memory");
        };
        match self {
            Self::Empty => {}
            Self::Bare => anonymous(700, 1000, false),
            Self::Small => {
                anonymous(700, 5, false);
                populate(700, 705);
            }
            Self::Sparse => {
                anonymous(0, 40 * 512, false);
                for table in 0..40 {
                    world.machine.on(table);
                    touch(world, space, u64::from(table) * 512 + 7, Access::Write);
                }
            }
            Self::Large => {
                anonymous(1000, 2700, false);
                populate(1000, 3700);
            }
            Self::Huge => {
                anonymous(1024, 1536, true);
                populate(1024, 2560);
                let unmapped = space.unmap(world.memory(), Vpn(1100), 9);
                assert_eq!(unmapped, Ok(()), "there is memory");
            }
            Self::Full => fill(world, space),
            Self::Changed => {
                fill(world, space);
                change(world, space);
            }
        }
    }
}
