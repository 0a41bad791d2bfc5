//! Memory for pages: one anonymous mapping that starts with frame 0.
//!
//! Frame 0 is aligned to the size of the largest block. So every block that is aligned in frame
//! numbers is equally aligned in memory, and a huge page fits into a block. Frames that were never
//! touched, or were returned to the kernel, take only address space.

use std::ptr::NonNull;
use std::{fmt, io};

use memmap2::MmapMut;
use plimsoll_mm::units::{Order, PAGE_SIZE, Pages, Pfn};

/// Zeroed memory for a number of page frames.
#[derive(Debug)]
pub struct Arena {
    map: MmapMut,
    /// The number of bytes from the start of the mapping to frame 0.
    skip_bytes: usize,
    pages: Pages,
}

/// The kernel's policy for huge pages in an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugePages {
    /// The kernel follows the system-wide settings.
    AsSystem,
    /// The kernel uses huge pages where it can (Linux: `MADV_HUGEPAGE`).
    Advise,
    /// The kernel uses no huge pages, so that single frames can be returned to it (Linux:
    /// `MADV_NOHUGEPAGE`).
    Refuse,
}

impl Arena {
    /// Maps memory for `pages` frames.
    ///
    /// # Errors
    /// If `pages` is 0 or too large, or the kernel refuses the mapping or the advice about huge
    /// pages.
    pub fn new(pages: Pages, huge: HugePages) -> Result<Self, ArenaError> {
        let align_bytes = Order::MAX.pages().bytes();
        let bytes = pages.bytes() + align_bytes;
        let bytes = usize::try_from(bytes).map_err(|_| ArenaError::Size { pages })?;
        if pages == Pages::ZERO {
            return Err(ArenaError::Size { pages });
        }
        let map = MmapMut::map_anon(bytes).map_err(|why| ArenaError::Map { pages, why })?;
        advise(&map, huge).map_err(|why| ArenaError::Advise { why })?;
        let align = usize::try_from(align_bytes).map_err(|_| ArenaError::Size { pages })?;
        let skip_bytes = map.as_ptr().addr().next_multiple_of(align) - map.as_ptr().addr();
        Ok(Self {
            map,
            skip_bytes,
            pages,
        })
    }

    /// The number of frames of the arena.
    #[must_use]
    pub fn pages(&self) -> Pages {
        self.pages
    }

    /// A pointer to the first byte of a frame.
    ///
    /// The pointer is valid for reads and writes of this frame and of all later frames, up to
    /// [`Arena::pages`], while the arena exists. The arena itself accesses the memory only in
    /// [`Arena::give_back`], whose caller guarantees that the frames are not in use. Threads that
    /// use the same memory must synchronize their accesses. If the frame comes from the page
    /// allocator, only the owner of the frame may access it.
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
        let offset = self.offset(pfn);
        // `wrapping_add` is a safe function. The addition does not wrap, because the frame is
        // inside the mapping.
        let byte = self.map.as_ptr().cast_mut().wrapping_add(offset);
        NonNull::new(byte).expect("a mapping does not contain address 0")
    }

    /// Returns the memory of `pages` frames, from `first` on, to the kernel (Linux:
    /// `MADV_DONTNEED`). The frames remain part of the arena. They read as zero, and take memory
    /// again when they are touched.
    ///
    /// # Errors
    /// If the arena has no such frames, or the kernel refuses. Also if the kernel's pages are
    /// larger than a frame, because neighbouring frames would then lose their memory too. In each
    /// case the call has changed nothing.
    ///
    /// # Safety
    /// The call zeroes the frames: until it returns, no reference to their memory may exist, and no
    /// thread may read or write it.
    #[expect(
        unsafe_code,
        reason = "only an owner of the frames may call it, and no type can express that"
    )]
    pub unsafe fn give_back(&self, first: Pfn, pages: Pages) -> io::Result<()> {
        let end = u64::from(first.0) + u64::from(pages.0);
        if end > u64::from(self.pages.0) {
            let why = format!("frame {end} would be one past the last of {}", self.pages);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let bytes = pages.0 as usize * page_bytes();
        imp::give_back(&self.map, self.offset(first), bytes)
    }

    /// Makes the kernel allocate memory for all frames now, rather than when each is first touched
    /// (Linux: `MADV_POPULATE_WRITE`, since 5.14). The contents of the frames do not change.
    ///
    /// # Errors
    /// The kernel's error, for instance if it is out of memory or does not support the request.
    pub fn populate(&self) -> io::Result<()> {
        let bytes = self.pages.0 as usize * page_bytes();
        imp::populate(&self.map, self.skip_bytes, bytes)
    }

    /// The number of frames for which the kernel currently holds memory (Linux:
    /// `/proc/self/pagemap`). Frames that were only read may count as well.
    ///
    /// # Errors
    /// If the kernel does not report this number.
    pub fn resident(&self) -> io::Result<Pages> {
        let first = self.page(Pfn(0)).addr().get();
        imp::resident(first, self.pages)
    }

    /// The offset of a frame from the start of the mapping, in bytes.
    fn offset(&self, pfn: Pfn) -> usize {
        self.skip_bytes + pfn.0 as usize * page_bytes()
    }
}

fn page_bytes() -> usize {
    usize::try_from(PAGE_SIZE).expect("a page is smaller than memory")
}

#[cfg(target_os = "linux")]
fn advise(map: &MmapMut, huge: HugePages) -> io::Result<()> {
    match huge {
        HugePages::AsSystem => Ok(()),
        HugePages::Advise => map.advise(memmap2::Advice::HugePage),
        HugePages::Refuse => map.advise(memmap2::Advice::NoHugePage),
    }
}

#[cfg(not(target_os = "linux"))]
fn advise(_map: &MmapMut, huge: HugePages) -> io::Result<()> {
    match huge {
        HugePages::AsSystem => Ok(()),
        HugePages::Advise | HugePages::Refuse => Err(io::ErrorKind::Unsupported.into()),
    }
}

#[cfg(target_os = "linux")]
#[expect(
    unsafe_code,
    reason = "giving memory back writes zeros to it, which its owner alone may"
)]
mod imp {
    use std::fs::File;
    use std::io;
    use std::os::unix::fs::FileExt;

    use memmap2::{Advice, MmapMut, UncheckedAdvice};
    use plimsoll_mm::units::Pages;

    use super::page_bytes;

    pub(super) fn give_back(map: &MmapMut, offset: usize, bytes: usize) -> io::Result<()> {
        // `memmap2` rounds down to the kernel's pages. If these are larger than a frame,
        // neighbouring frames would lose their memory too.
        kernel_pages_are_frames()?;
        // SAFETY: the range is inside the mapping and consists of whole pages. The kernel writes
        // zeros to it, as a write through a raw pointer would. This code never creates a reference
        // to the mapping, and the caller of `Arena::give_back` guarantees that no other reference
        // exists.
        unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, offset, bytes) }
    }

    pub(super) fn populate(map: &MmapMut, offset: usize, bytes: usize) -> io::Result<()> {
        map.advise_range(Advice::PopulateWrite, offset, bytes)
    }

    pub(super) fn resident(first: usize, pages: Pages) -> io::Result<Pages> {
        const ENTRY_BYTES: usize = 8;
        /// The "present" flag of an entry of `/proc/self/pagemap`, which is a number in native byte
        /// order.
        const PRESENT: u64 = 1 << 63;
        kernel_pages_are_frames()?;
        let pagemap = File::open("/proc/self/pagemap")?;
        let mut entries = vec![0; pages.0 as usize * ENTRY_BYTES];
        let start = first / page_bytes() * ENTRY_BYTES;
        pagemap.read_exact_at(&mut entries, start as u64)?;
        let (entries, _) = entries.as_chunks::<ENTRY_BYTES>();
        let present = entries.iter().map(|entry| u64::from_ne_bytes(*entry));
        let present = present.filter(|entry| entry & PRESENT != 0).count();
        Ok(Pages(u32::try_from(present).expect("at most `pages`")))
    }

    fn kernel_pages_are_frames() -> io::Result<()> {
        if rustix::param::page_size() == page_bytes() {
            return Ok(());
        }
        let why = "the kernel's pages are larger than frames";
        Err(io::Error::new(io::ErrorKind::Unsupported, why))
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    use std::io;

    use memmap2::MmapMut;
    use plimsoll_mm::units::Pages;

    pub(super) fn give_back(_map: &MmapMut, _offset: usize, _bytes: usize) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn populate(_map: &MmapMut, _offset: usize, _bytes: usize) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn resident(_first: usize, _pages: Pages) -> io::Result<Pages> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// The reason why an arena could not be created.
#[derive(Debug)]
pub enum ArenaError {
    /// The arena would have no pages, or more pages than the address space can hold.
    Size {
        /// The requested number of pages.
        pages: Pages,
    },
    /// The kernel refused the mapping.
    Map {
        /// The requested number of pages.
        pages: Pages,
        /// The kernel's error.
        why: io::Error,
    },
    /// The kernel refused the advice about huge pages, for instance because it does not support
    /// them.
    Advise {
        /// The kernel's error.
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
#[expect(unsafe_code, reason = "the test reads a page through its pointer")]
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
        // SAFETY: the byte is in a frame of a live arena that only this test touches.
        assert_eq!(unsafe { byte.read() }, 0);
        // SAFETY: the byte is in a frame of a live arena that only this test touches.
        unsafe { byte.write(7) };
        // SAFETY: the byte is in a frame of a live arena that only this test touches.
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

    #[cfg(target_os = "linux")]
    #[test]
    fn frames_given_back_are_zero_and_cost_nothing_while_their_neighbours_stay() {
        let arena = Arena::new(Pages(512), HugePages::Refuse).expect("2 MiB can be mapped");
        assert_eq!(arena.resident().expect("Linux says"), Pages(0));
        arena.populate().expect("the kernel has 2 MiB");
        assert_eq!(arena.resident().expect("Linux says"), Pages(512));
        for frame in [99, 100, 149, 150] {
            // SAFETY: a frame of a live arena that only this test touches.
            unsafe { arena.page(Pfn(frame)).write(7) };
        }
        // SAFETY: no reference to a frame exists, and only this test touches the arena.
        let given = unsafe { arena.give_back(Pfn(100), Pages(50)) };
        given.expect("the arena has them");
        assert_eq!(arena.resident().expect("Linux says"), Pages(462));
        // SAFETY: a frame of a live arena that only this test touches.
        let read = |frame| unsafe { arena.page(Pfn(frame)).read() };
        assert_eq!([99, 100, 149, 150].map(read), [7, 0, 0, 7]);
        // SAFETY: no reference to a frame exists, and only this test touches the arena.
        let past = unsafe { arena.give_back(Pfn(500), Pages(13)) };
        let past = past.expect_err("12 left");
        assert_eq!(past.kind(), io::ErrorKind::InvalidInput);
        assert_eq!(arena.resident().expect("Linux says"), Pages(464));
    }

    #[test]
    #[should_panic(expected = "frame 4 is not one of 4")]
    fn a_frame_past_the_end_is_a_bug_of_the_caller() {
        let arena = Arena::new(Pages(4), HugePages::AsSystem).expect("16 KiB can be mapped");
        let _ = arena.page(Pfn(4));
    }
}
