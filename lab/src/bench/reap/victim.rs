//! The victim of a race between an exiting thread and helper threads: an address space with a given
//! number of pages, on the host or on a simulated machine.

use plimsoll_mm::machine::Machine;
use plimsoll_mm::space::rss::RssKind;
use plimsoll_mm::space::{AddressSpace, MapRequest, Memory, Place};
use plimsoll_mm::units::{Pages, Vpn};

/// How the victim's pages are mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// The pages are in mappings of [`MAPPING`] pages each, with gaps between them.
    Many,
    /// All pages are in a single mapping.
    One,
}

/// How many pages each mapping of [`Shape::Many`] has. A page table maps 512 pages, which is about
/// seven of these mappings with the gaps between them.
const MAPPING: u64 = 64;
/// The number of unmapped pages between two mappings. Without this gap, the two mappings would be
/// merged into one.
const GAP: u64 = 8;
/// The first page of the victim's first mapping. Its address is 2 MiB.
const FIRST: Vpn = Vpn(512);

impl Shape {
    pub(super) const ALL: [Self; 2] = [Self::Many, Self::One];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Many => "many mappings",
            Self::One => "one mapping",
        }
    }

    /// Returns three numbers for a victim of `pages`. The first is the number of mappings, and the
    /// second is the number of pages in each mapping. The third is the number of pages from the
    /// start of one mapping to the start of the next.
    fn mappings(self, pages: Pages) -> (u64, u64, u64) {
        let pages = u64::from(pages.0);
        match self {
            Self::Many => (pages / MAPPING, MAPPING, MAPPING + GAP),
            Self::One => (1, pages, pages),
        }
    }
}

/// The number of frames that a machine needs for a victim of `pages`, including its page tables and
/// enough free pages to stay above the watermarks. It is a multiple of 1024.
pub(super) fn frames(pages: Pages) -> Pages {
    Pages((pages.0 + pages.0 / 8 + 4096).next_multiple_of(1024))
}

/// Builds an address space with `pages`, all of which are mapped and touched. Their number must be
/// a multiple of 64.
///
/// # Panics
/// If the machine has fewer frames than [`frames`] returns for `pages`.
pub(super) fn build<M: Machine>(
    memory: Memory<'_, M>,
    shape: Shape,
    pages: Pages,
) -> AddressSpace<M> {
    let space = AddressSpace::new(memory).expect("there is memory for counters");
    let (count, each, apart) = shape.mappings(pages);
    for nth in 0..count {
        let request = MapRequest::anonymous(Place::Fixed(Vpn(FIRST.0 + nth * apart)), each);
        let vma = space.map(memory, request).expect("nothing is there");
        space
            .populate(memory, vma.start..vma.end)
            .expect("there are enough frames");
    }
    let resident = space.rss().precise(memory.machine, RssKind::Anon);
    assert_eq!(resident, u64::from(pages.0), "all are touched");
    space
}
