//! The layout of memory: its nodes, zones and holes. [`Layout::check`] checks whether the allocator
//! can manage a layout.

use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use super::links::Metadata;
use crate::topology::NODES_MAX;
use crate::units::{NodeId, Order, Pages, Pfn};

/// The maximum number of pages a zone may span. In a zone of up to this size, the page number of
/// every block's buddy fits in 32 bits, even if the buddy is outside the zone.
pub const ZONE_PAGES_MAX: Pages = Pages(!(Order::MAX.pages().0 - 1));

/// The kind of a zone, from lowest to highest. A request may be served from its own kind or a lower
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ZoneKind {
    /// The first 16 MiB, for devices with 24-bit addresses.
    Dma,
    /// Memory below 4 GiB, for devices with 32-bit addresses.
    Dma32,
    /// All other memory.
    Normal,
    /// Memory for movable pages only.
    Movable,
}

impl ZoneKind {
    /// All kinds, from lowest to highest.
    pub const ALL: [Self; 4] = [Self::Dma, Self::Dma32, Self::Normal, Self::Movable];

    /// The name of the kind in `/proc/zoneinfo`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dma => "DMA",
            Self::Dma32 => "DMA32",
            Self::Normal => "Normal",
            Self::Movable => "Movable",
        }
    }
}

/// The place and size of one zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneLayout {
    /// The kind of the zone.
    pub kind: ZoneKind,
    /// The node that this zone belongs to.
    pub node: NodeId,
    /// The first frame, a multiple of 1024 pages.
    pub start: Pfn,
    /// The number of pages, holes included.
    pub spanned: Pages,
    /// The ranges of frame numbers without memory, in ascending order and not overlapping.
    pub holes: Vec<Range<u32>>,
}

impl ZoneLayout {
    /// The number of pages of memory, without holes. Meaningless for a zone that [`Layout::check`]
    /// rejects.
    #[must_use]
    pub fn managed(&self) -> Pages {
        let pages = |hole: &Range<u32>| hole.end.saturating_sub(hole.start);
        let holes = self.holes.iter().map(pages).fold(0, u32::saturating_add);
        self.spanned.saturating_sub(Pages(holes))
    }

    /// The frame numbers that the zone spans.
    #[must_use]
    pub fn span(&self) -> Range<u32> {
        self.start.0..self.start.0.saturating_add(self.spanned.0)
    }
}

/// The layout of all memory of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The zones of the machine, in any order.
    pub zones: Vec<ZoneLayout>,
    /// When memory for the links of the free lists is allocated.
    pub metadata: Metadata,
    /// How the zones keep free blocks that are smaller than a huge block.
    pub index: FreeIndex,
}

/// How a zone keeps its free blocks that are smaller than a huge block (512 pages). Huge and larger
/// free blocks are always on free lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FreeIndex {
    /// Free blocks are on a list for each order, as in Linux. Each managed page takes 5 bytes.
    #[default]
    Lists,
    /// Free pages are bits in a bitmap for each huge block. Freeing and allocating many pages is
    /// faster, and each managed page takes 1.2 bytes. An allocation takes the lowest suitable pages
    /// of a huge block, and not those that were freed last.
    ///
    /// Zones whose pages are grouped by mobility, or whose blocks are owned by CPUs, use lists
    /// instead.
    Bitmaps,
}

impl Layout {
    /// Returns a layout with one zone of `pages` pages from frame 0, for a program that has mapped
    /// memory for the pages of the allocator (an arena).
    #[must_use]
    pub fn arena(pages: Pages) -> Self {
        Self::of([ZoneLayout {
            kind: ZoneKind::Normal,
            node: NodeId(0),
            start: Pfn(0),
            spanned: pages,
            holes: Vec::new(),
        }])
    }

    /// Returns a layout with one zone that has `pages` pages from frame 0 now, and may grow to
    /// `most` pages. For each page that the zone may gain, the allocator reserves a tag of one
    /// byte; if reclaim is on, the lists of used pages also reserve a record. If `pages` is more
    /// than `most`, the zone has `most` pages. `pages` must not be 0: every zone needs a page at
    /// the start.
    ///
    /// If `pages` is less than `most`, both must be multiples of 1024; otherwise the last block of
    /// the initial pages can never be completed, and the last pages can never be added.
    #[must_use]
    pub fn arena_up_to(pages: Pages, most: Pages) -> Self {
        let mut layout = Self::arena(most);
        if pages < most {
            layout.zones[0].holes.push(pages.0..most.0);
        }
        layout
    }

    /// Returns a layout of these zones. Memory for the links of the free lists is allocated in
    /// advance.
    #[must_use]
    pub fn of(zones: impl IntoIterator<Item = ZoneLayout>) -> Self {
        Self {
            zones: zones.into_iter().collect(),
            metadata: Metadata::Eager,
            index: FreeIndex::Lists,
        }
    }

    /// Returns a layout with one node for each entry of `bytes`. The entry is the size of the
    /// node's memory in bytes, and the memory of a node begins where the memory of the node before
    /// it ends. The memory is divided into zones as on x86-64: the first 16 MiB are DMA, the rest
    /// below 4 GiB is DMA32, and everything above is Normal. Memory past frame 2^32 (16 TiB) is
    /// left out.
    #[must_use]
    pub fn of_nodes(bytes: &[u64]) -> Self {
        const DMA_END: u32 = 16 << 8;
        const DMA32_END: u32 = 4 << 18;
        let mut zones = Vec::new();
        let mut start = 0u32;
        for (node, &bytes) in (0..).map(NodeId).zip(bytes) {
            let pages = Pages::from_bytes(bytes).0 & !(Order::MAX.pages().0 - 1);
            let end = start.saturating_add(pages);
            for (kind, limit) in [
                (ZoneKind::Dma, DMA_END),
                (ZoneKind::Dma32, DMA32_END),
                (ZoneKind::Normal, u32::MAX),
            ] {
                let zone_end = end.min(limit);
                if start < zone_end {
                    let spanned = Pages(zone_end - start);
                    let (start, holes) = (Pfn(start), Vec::new());
                    zones.push(ZoneLayout {
                        kind,
                        node,
                        start,
                        spanned,
                        holes,
                    });
                }
                start = start.max(zone_end);
            }
        }
        Self {
            zones,
            metadata: Metadata::Eager,
            index: FreeIndex::Lists,
        }
    }

    /// Returns the number of nodes, counted up to the last node that has memory. A lower node
    /// counts even if it has no memory.
    #[must_use]
    pub fn nodes(&self) -> u32 {
        let nodes = self.zones.iter().map(|zone| zone.node.0 + 1);
        nodes.max().unwrap_or(0)
    }

    /// Changes the layout so that memory for the links of the free lists is allocated only when a
    /// block is first split.
    #[must_use]
    pub fn lazily(mut self) -> Self {
        self.metadata = Metadata::WhenSplit;
        self
    }

    /// Changes the layout so that zones keep small free blocks in bitmaps ([`FreeIndex::Bitmaps`]).
    ///
    /// ```
    /// use plimsoll_mm::page::{FreeIndex, Layout};
    /// use plimsoll_mm::units::Pages;
    ///
    /// let layout = Layout::arena(Pages(1 << 15)).with_bitmaps();
    /// assert_eq!(layout.index, FreeIndex::Bitmaps);
    /// ```
    #[must_use]
    pub fn with_bitmaps(mut self) -> Self {
        self.index = FreeIndex::Bitmaps;
        self
    }

    /// Returns whether a request that tries `zone` first must try the lower zones of the node
    /// before it may mix types in a page block (Linux: `alloc_flags_nofragment`). The result is
    /// true if `zone` is the normal memory of a node that also has DMA32.
    pub(super) fn stays_unmixed(&self, zone: &ZoneLayout) -> bool {
        let below = |other: &ZoneLayout| other.kind == ZoneKind::Dma32 && other.node == zone.node;
        zone.kind == ZoneKind::Normal && self.zones.iter().any(below)
    }

    /// Checks that the page allocator can manage this layout.
    ///
    /// # Errors
    /// Returns the reason why the first zone with a fault cannot be managed.
    pub fn check(&self) -> Result<(), LayoutError> {
        if self.zones.is_empty() {
            return Err(LayoutError::NoZone);
        }
        for (index, zone) in self.zones.iter().enumerate() {
            if !zone.start.is_aligned(Order::MAX) {
                return Err(LayoutError::Unaligned(index));
            }
            let fits = zone.start.0.checked_add(zone.spanned.0).is_some();
            if zone.spanned == Pages::ZERO || !fits {
                return Err(LayoutError::NoPages(index));
            }
            if zone.spanned > ZONE_PAGES_MAX {
                return Err(LayoutError::TooLarge(index));
            }
            if zone.node.0 >= NODES_MAX {
                return Err(LayoutError::NoSuchNode(index));
            }
            let span = zone.span();
            let mut from = span.start;
            for hole in &zone.holes {
                if hole.start < from || hole.end <= hole.start || hole.end > span.end {
                    return Err(LayoutError::BadHole(index));
                }
                from = hole.end;
            }
            if zone.managed() == Pages::ZERO {
                return Err(LayoutError::NoPages(index));
            }
            let overlaps = |other: &ZoneLayout| {
                let theirs = other.span();
                theirs.start < span.end && span.start < theirs.end
            };
            if self.zones[..index].iter().any(overlaps) {
                return Err(LayoutError::Overlap(index));
            }
        }
        Ok(())
    }
}

/// The reason why a layout cannot be managed. The number in a variant is the zone's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutError {
    /// The layout has no zone.
    NoZone,
    /// A zone has no pages of memory, or ends past the last frame number.
    NoPages(usize),
    /// A zone spans more pages than [`ZONE_PAGES_MAX`].
    TooLarge(usize),
    /// A zone is on a node whose number is not less than [`NODES_MAX`].
    NoSuchNode(usize),
    /// A zone does not start at a multiple of 1024 pages.
    Unaligned(usize),
    /// A hole is empty, outside its zone, or starts before the end of the previous hole.
    BadHole(usize),
    /// A zone shares pages with an earlier one.
    Overlap(usize),
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoZone => write!(f, "a layout needs at least one zone"),
            Self::NoPages(zone) => write!(f, "zone {zone} has no page, or ends past frame 2^32"),
            Self::TooLarge(zone) => write!(
                f,
                "zone {zone} spans more than {ZONE_PAGES_MAX} pages: make it two zones"
            ),
            Self::NoSuchNode(zone) => write!(
                f,
                "zone {zone} has an invalid node number: nodes are 0 to {}",
                NODES_MAX - 1
            ),
            Self::Unaligned(zone) => {
                write!(f, "zone {zone} must start at a multiple of 1024 pages")
            }
            Self::BadHole(zone) => {
                write!(
                    f,
                    "a hole of zone {zone} is empty, out of order or outside the zone"
                )
            }
            Self::Overlap(zone) => write!(f, "zone {zone} overlaps an earlier zone"),
        }
    }
}

impl core::error::Error for LayoutError {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn zone(start: u32, pages: u32) -> ZoneLayout {
        let mut layout = Layout::arena(Pages(pages));
        layout.zones[0].start = Pfn(start);
        layout.zones.remove(0)
    }

    #[test]
    fn nodes_are_cut_into_zones_as_on_x86() {
        let layout = Layout::of_nodes(&[8 << 30, 4 << 30]);
        let zones: Vec<_> = layout
            .zones
            .iter()
            .map(|zone| (zone.kind, zone.node.0, zone.spanned.0))
            .collect();
        assert_eq!(
            zones,
            [
                (ZoneKind::Dma, 0, 4096),
                (ZoneKind::Dma32, 0, (4 << 18) - 4096),
                (ZoneKind::Normal, 0, 4 << 18),
                (ZoneKind::Normal, 1, 4 << 18),
            ]
        );
        assert_eq!(layout.check(), Ok(()));
    }

    #[test]
    fn an_impossible_layout_is_refused() {
        let check = |zones: Vec<ZoneLayout>| Layout::of(zones).check();
        assert_eq!(check(vec![]), Err(LayoutError::NoZone));
        assert_eq!(check(vec![zone(0, 0)]), Err(LayoutError::NoPages(0)));
        assert_eq!(check(vec![zone(!1023, 2048)]), Err(LayoutError::NoPages(0)));
        assert_eq!(check(vec![zone(1, 4096)]), Err(LayoutError::Unaligned(0)));
        assert_eq!(
            check(vec![zone(0, 4096), zone(2048, 4096)]),
            Err(LayoutError::Overlap(1))
        );
        let holed = ZoneLayout {
            holes: vec![10..20, 15..30],
            ..zone(0, 1024)
        };
        assert_eq!(check(vec![holed]), Err(LayoutError::BadHole(0)));
    }

    #[test]
    fn a_layout_at_the_ends_of_its_types_is_refused_without_a_panic() {
        let check = |zone: ZoneLayout| Layout::of([zone]).lazily().check();
        let (start, end) = (20, 10);
        let reversed = ZoneLayout {
            holes: core::iter::once(start..end).collect(),
            ..zone(0, 4096)
        };
        assert_eq!(check(reversed), Err(LayoutError::BadHole(0)));
        let twice = ZoneLayout {
            holes: vec![0..u32::MAX, 0..u32::MAX],
            ..zone(0, 4096)
        };
        assert_eq!(check(twice), Err(LayoutError::BadHole(0)));
        let nowhere = ZoneLayout {
            node: NodeId(u32::MAX),
            ..zone(0, 4096)
        };
        assert_eq!(check(nowhere), Err(LayoutError::NoSuchNode(0)));
        assert_eq!(check(zone(0, u32::MAX)), Err(LayoutError::TooLarge(0)));
        assert_eq!(check(zone(0, ZONE_PAGES_MAX.0)), Ok(()));
        assert_eq!(check(zone(!1023, 1023)), Ok(()));
    }
}
