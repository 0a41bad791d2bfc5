//! Memory for pages: one mapping that contains frame 0. The mapping is either private or a file in
//! memory with a file descriptor.
//!
//! Frame 0 is aligned to the size of the largest block. So a block that is aligned in frame numbers
//! is equally aligned in memory, and a huge page fits into a block. The file of an arena with a
//! file descriptor is an exception: the kernel aligns huge pages within the file, and the offset of
//! frame 0 in the file is only a multiple of 4 KiB. So there a huge page may cover parts of two
//! blocks. Frames that were never touched, or were returned to the kernel, take only address space.

mod options;

use std::io;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::ptr::NonNull;

#[cfg(unix)]
use std::os::fd::BorrowedFd;

use memmap2::{MmapOptions, MmapRaw};
use plimsoll_mm::units::{NodeId, Order, PAGE_SIZE, Pages, Pfn};

pub use self::options::{ArenaError, ArenaOptions, HugePages, OnFork};
use crate::fork::Origin;
use crate::numa::{self, Placement};
use crate::sys;

/// Zeroed memory for a number of page frames.
///
/// A forked child may drop an arena of its parent. If the arena is [`OnFork::Absent`], the child
/// may have other memory at the arena's addresses. The drop leaves that memory alone.
#[derive(Debug)]
pub struct Arena {
    map: ManuallyDrop<MmapRaw>,
    on_fork: OnFork,
    /// The process that mapped the memory.
    origin: Origin,
    /// The file that holds the arena's memory; `None` if the memory is private.
    file: Option<imp::MemoryFile>,
    /// The number of bytes from the start of the mapping to frame 0.
    skip_bytes: usize,
    pages: Pages,
    placement: Placement,
}

impl Arena {
    /// Maps private memory for `pages` frames; see [`ArenaOptions`] for more choices.
    ///
    /// # Errors
    /// If `pages` is 0 or too large, or the kernel refuses the mapping or the advice about huge
    /// pages.
    pub fn new(pages: Pages, huge: HugePages) -> Result<Self, ArenaError> {
        ArenaOptions::new(pages).huge_pages(huge).map()
    }

    fn with(options: &ArenaOptions) -> Result<Self, ArenaError> {
        let pages = options.pages;
        let align_bytes = Order::MAX.pages().bytes();
        let bytes = pages.bytes() + align_bytes;
        let bytes = usize::try_from(bytes).map_err(|_| ArenaError::Size { pages })?;
        if pages == Pages::ZERO {
            return Err(ArenaError::Size { pages });
        }
        let refused = |why| ArenaError::Map { pages, why };
        let origin = Origin::here();
        let (map, file) = match &options.memfd {
            None => {
                // Without this flag (`MAP_NORESERVE`), the kernel would count all frames as
                // committed memory, even frames that are never touched.
                let map = MmapOptions::new().len(bytes).no_reserve_swap().map_anon();
                (map.map_err(refused)?.into(), None)
            }
            Some(name) => {
                let file = imp::MemoryFile::new(name, bytes as u64);
                let file = file.map_err(|why| ArenaError::Memfd { why })?;
                (file.map().map_err(refused)?, Some(file))
            }
        };
        advise(&map, options.huge).map_err(|why| ArenaError::Advise { why })?;
        let align = usize::try_from(align_bytes).map_err(|_| ArenaError::Size { pages })?;
        let skip_bytes = map.as_ptr().addr().next_multiple_of(align) - map.as_ptr().addr();
        let on_fork = options.on_fork;
        let mut arena = Self {
            map: ManuallyDrop::new(map),
            on_fork,
            origin,
            file,
            skip_bytes,
            pages,
            placement: Placement::NotAsked,
        };
        let guarded = arena.set_on_fork(on_fork);
        guarded.map_err(|why| ArenaError::Fork { on_fork, why })?;
        arena.placement = arena.bind(&options.nodes)?;
        if options.populate {
            let populated = arena.populate();
            populated.map_err(|why| ArenaError::Populate { why })?;
        }
        Ok(arena)
    }

    fn set_on_fork(&self, on_fork: OnFork) -> io::Result<()> {
        match on_fork {
            OnFork::Inherit => Ok(()),
            OnFork::Absent => imp::leave_out_of_forks(&self.map),
            OnFork::Zeroed => {
                let bytes = self.pages.0 as usize * page_bytes();
                // SAFETY: no Rust value is in the arena's memory, and `Arena::page` documents that
                // the options of the arena decide what a child finds there.
                #[expect(unsafe_code, reason = "children of forks find other contents")]
                unsafe {
                    sys::wipe_on_fork(self.page(Pfn(0)).as_ptr(), bytes)
                }
            }
        }
    }

    /// Binds each range of frames to its node.
    fn bind(&self, ranges: &[(Range<u32>, NodeId)]) -> Result<Placement, ArenaError> {
        let mut placed = 0;
        for (frames, node) in ranges {
            let (frames, node) = (frames.clone(), *node);
            if frames.is_empty() || frames.end > self.pages.0 {
                let pages = self.pages;
                return Err(ArenaError::Range { frames, pages });
            }
            let nodes = numa::nodes_with_memory();
            let nodes = nodes.map_err(|why| ArenaError::Bind { node, why })?;
            if !nodes.contains(&node) {
                return Err(ArenaError::NoSuchNode { node, nodes });
            }
            if nodes.len() == 1 {
                continue;
            }
            let address = self.page(Pfn(frames.start)).addr().get();
            let bound = sys::bind(address, frames.len() * page_bytes(), node.0);
            bound.map_err(|why| ArenaError::Bind { node, why })?;
            placed += frames.len() as u64;
        }
        Ok(match (ranges, placed) {
            ([], _) => Placement::NotAsked,
            (_, 0) => Placement::OneNode,
            (_, pages) => Placement::Placed { pages },
        })
    }

    /// Returns the outcome of the requests of [`ArenaOptions::on_node`].
    #[must_use]
    pub fn placement(&self) -> Placement {
        self.placement
    }

    /// The file descriptor of the memory, if the arena was created with [`ArenaOptions::memfd`]. A
    /// process that has the descriptor can map the memory: frame 0 begins at the offset
    /// [`Arena::fd_offset`] of the file.
    #[cfg(unix)]
    #[must_use]
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(imp::MemoryFile::fd)
    }

    /// The offset of frame 0 in the file of [`Arena::fd`], in bytes. The offset is a multiple of
    /// the page size, and may differ from run to run. The bytes before frame 0 are not used.
    #[must_use]
    pub fn fd_offset(&self) -> u64 {
        self.skip_bytes as u64
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
    /// allocator, only the owner of the frame may access it. In a forked child, the options of the
    /// arena decide what is at this address: see [`OnFork`].
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
    /// `MADV_DONTNEED`; for memory with a file descriptor, `FALLOC_FL_PUNCH_HOLE`). The frames
    /// remain part of the arena. They read as zero, and take memory again when they are touched.
    ///
    /// # Errors
    /// If the arena has no such frames, is absent in this child of a fork, or the kernel refuses.
    /// Also if the kernel's pages are larger than a frame, because neighbouring frames would then
    /// lose their memory too. In each case the call has changed nothing.
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
        self.check_present()?;
        let bytes = pages.0 as usize * page_bytes();
        match &self.file {
            Some(file) => file.give_back(self.offset(first) as u64, bytes as u64),
            None => imp::give_back(&self.map, self.offset(first), bytes),
        }
    }

    /// Makes the kernel allocate memory for all frames now, rather than when each is first touched
    /// (Linux: `MADV_POPULATE_WRITE`, since 5.14). The contents of the frames do not change.
    ///
    /// # Errors
    /// The kernel's error, for instance if it is out of memory or does not support the request.
    /// Also if the arena is absent in this child of a fork.
    pub fn populate(&self) -> io::Result<()> {
        self.check_present()?;
        let bytes = self.pages.0 as usize * page_bytes();
        imp::populate(&self.map, self.skip_bytes, bytes)
    }

    /// The number of frames for which the kernel currently holds memory (Linux:
    /// `/proc/self/pagemap`). Frames that were only read may count as well.
    ///
    /// For memory with a file descriptor, this is the memory of the file, whichever process touched
    /// it. Up to 1024 frames of the file lie outside the arena. They count too if another process
    /// touched them, or a huge page covers them.
    ///
    /// # Errors
    /// If the kernel does not report this number, or the arena is absent in this child of a fork.
    pub fn resident(&self) -> io::Result<Pages> {
        self.check_present()?;
        if let Some(file) = &self.file {
            return file.resident();
        }
        let first = self.page(Pfn(0)).addr().get();
        imp::resident(first, self.pages)
    }

    /// The offset of a frame from the start of the mapping, in bytes.
    fn offset(&self, pfn: Pfn) -> usize {
        self.skip_bytes + pfn.0 as usize * page_bytes()
    }

    /// Returns whether the arena's memory is at its addresses in this process. The memory is
    /// missing in a forked child if the arena is [`OnFork::Absent`].
    fn is_present(&self) -> bool {
        self.on_fork != OnFork::Absent || self.origin.is_here()
    }

    fn check_present(&self) -> io::Result<()> {
        if self.is_present() {
            return Ok(());
        }
        let why = "this process was forked from the one that mapped the arena, and has no part of \
                   it: map an arena after the fork, or choose what a child has (`OnFork`)";
        Err(io::Error::other(why))
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        if self.is_present() {
            // SAFETY: nothing uses the map after this.
            #[expect(unsafe_code, reason = "the map must not be dropped in some processes")]
            unsafe {
                ManuallyDrop::drop(&mut self.map);
            }
        }
    }
}

fn page_bytes() -> usize {
    usize::try_from(PAGE_SIZE).expect("a page is smaller than memory")
}

#[cfg(target_os = "linux")]
fn advise(map: &MmapRaw, huge: HugePages) -> io::Result<()> {
    match huge {
        HugePages::AsSystem => Ok(()),
        HugePages::Advise => map.advise(memmap2::Advice::HugePage),
        HugePages::Refuse => map.advise(memmap2::Advice::NoHugePage),
    }
}

#[cfg(not(target_os = "linux"))]
fn advise(_map: &MmapRaw, huge: HugePages) -> io::Result<()> {
    match huge {
        HugePages::AsSystem => Ok(()),
        HugePages::Advise | HugePages::Refuse => Err(io::ErrorKind::Unsupported.into()),
    }
}

#[cfg(target_os = "linux")]
#[path = "linux.rs"]
mod imp;
#[cfg(not(target_os = "linux"))]
#[path = "elsewhere.rs"]
mod imp;

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
            // SAFETY: the byte is in a frame of a live arena that only this test touches.
            unsafe { arena.page(Pfn(frame)).write(7) };
        }
        // SAFETY: no reference to a frame exists, and only this test touches the arena.
        let given = unsafe { arena.give_back(Pfn(100), Pages(50)) };
        given.expect("the arena has them");
        assert_eq!(arena.resident().expect("Linux says"), Pages(462));
        // SAFETY: the byte is in a frame of a live arena that only this test touches.
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
