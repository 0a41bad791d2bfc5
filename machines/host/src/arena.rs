//! Memory for pages: one anonymous mapping, frame 0 first.
//!
//! The base is aligned to the largest block, so a block of frames is aligned in memory as it is
//! by number, and a huge page fits a block. Untouched frames cost address space only.

use std::ptr::NonNull;
use std::{fmt, io};

use memmap2::MmapMut;
use plimsoll_mm::units::{Order, PAGE_SIZE, Pages, Pfn};

/// Zeroed memory for a number of page frames.
#[derive(Debug)]
pub struct Arena {
    map: MmapMut,
    /// From the start of the mapping to frame 0.
    skip_bytes: usize,
    pages: Pages,
}

/// Whether the kernel is to use huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugePages {
    /// As the system is set up.
    AsSystem,
    /// Where it can (Linux: `MADV_HUGEPAGE`).
    Advise,
}

impl Arena {
    /// Maps memory for `pages` frames.
    ///
    /// # Errors
    /// If there are none, or the kernel refuses the mapping or the advice.
    pub fn new(pages: Pages, huge: HugePages) -> Result<Self, ArenaError> {
        let align_bytes = Order::MAX.pages().bytes();
        let bytes = pages.bytes() + align_bytes;
        let bytes = usize::try_from(bytes).map_err(|_| ArenaError::Size { pages })?;
        if pages == Pages::ZERO {
            return Err(ArenaError::Size { pages });
        }
        let map = MmapMut::map_anon(bytes).map_err(|why| ArenaError::Map { pages, why })?;
        if huge == HugePages::Advise {
            advise_huge(&map).map_err(|why| ArenaError::Advise { why })?;
        }
        let align = usize::try_from(align_bytes).map_err(|_| ArenaError::Size { pages })?;
        let skip_bytes = map.as_ptr().addr().next_multiple_of(align) - map.as_ptr().addr();
        Ok(Self {
            map,
            skip_bytes,
            pages,
        })
    }

    /// How many frames there are.
    #[must_use]
    pub fn pages(&self) -> Pages {
        self.pages
    }

    /// The first byte of a frame.
    ///
    /// It is valid for reads and writes of the frame, and of those after it up to
    /// [`Arena::pages`], as long as the arena lives. The arena never touches the memory; who
    /// reads and writes it, in which order, is between those who have the pointer: with the page
    /// allocator, only the owner of the frame does.
    ///
    /// # Panics
    /// If the arena has no such frame.
    #[must_use]
    pub fn page(&self, pfn: Pfn) -> NonNull<u8> {
        assert!(
            pfn.0 < self.pages.0,
            "frame {} is not one of {}",
            pfn.0,
            self.pages
        );
        let page_bytes = usize::try_from(PAGE_SIZE).expect("a page is smaller than memory");
        let offset = self.skip_bytes + pfn.0 as usize * page_bytes;
        // Wrapping arithmetic is safe; it does not wrap, as the frame is inside the mapping.
        let byte = self.map.as_ptr().cast_mut().wrapping_add(offset);
        NonNull::new(byte).expect("a mapping does not contain address 0")
    }
}

#[cfg(target_os = "linux")]
fn advise_huge(map: &MmapMut) -> io::Result<()> {
    map.advise(memmap2::Advice::HugePage)
}

#[cfg(not(target_os = "linux"))]
fn advise_huge(_map: &MmapMut) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Why there is no arena.
#[derive(Debug)]
pub enum ArenaError {
    /// No pages, or more than an address reaches.
    Size {
        /// How many were asked for.
        pages: Pages,
    },
    /// The kernel refused the mapping.
    Map {
        /// How many were asked for.
        pages: Pages,
        /// What it said.
        why: io::Error,
    },
    /// The kernel has no huge pages to advise.
    Advise {
        /// What it said.
        why: io::Error,
    },
}

impl fmt::Display for ArenaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size { pages } => write!(f, "an arena cannot have {pages} pages"),
            Self::Map { pages, why } => write!(f, "the kernel did not map {pages} pages: {why}"),
            Self::Advise { why } => write!(f, "the kernel did not take the advice: {why}"),
        }
    }
}

impl std::error::Error for ArenaError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Size { .. } => None,
            Self::Map { why, .. } | Self::Advise { why } => Some(why),
        }
    }
}

#[cfg(test)]
#[expect(
    unsafe_code,
    reason = "reading a page through its pointer is what is tested"
)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_apart_aligned_zeroed_and_writable() {
        let arena = Arena::new(Pages(2000), HugePages::AsSystem).expect("8 MiB can be mapped");
        assert_eq!(arena.page(Pfn(0)).addr().get() % (4 << 20), 0);
        let (low, last) = (arena.page(Pfn(1998)), arena.page(Pfn(1999)));
        assert_eq!(last.addr().get() - low.addr().get(), 4096);
        // SAFETY: the last byte of a frame of a live arena that only this test touches.
        let byte = unsafe { last.add(4095) };
        // SAFETY: as above.
        assert_eq!(unsafe { byte.read() }, 0);
        // SAFETY: as above.
        unsafe { byte.write(7) };
        // SAFETY: as above.
        assert_eq!(unsafe { byte.read() }, 7);
    }

    #[test]
    fn no_pages_are_an_error_and_advice_does_no_harm() {
        let none = Arena::new(Pages(0), HugePages::AsSystem);
        assert!(matches!(none, Err(ArenaError::Size { pages: Pages(0) })));
        match Arena::new(Pages(1024), HugePages::Advise) {
            Ok(arena) => assert_eq!(arena.pages(), Pages(1024)),
            Err(why) => assert!(matches!(why, ArenaError::Advise { .. }), "{why}"),
        }
    }

    #[test]
    #[should_panic(expected = "frame 4 is not one of 4")]
    fn a_frame_past_the_end_is_a_bug_of_the_caller() {
        let arena = Arena::new(Pages(4), HugePages::AsSystem).expect("16 KiB can be mapped");
        let _ = arena.page(Pfn(4));
    }
}
