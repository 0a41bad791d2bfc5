//! The parts of an arena that only Linux supports: files in memory, returning memory to the kernel,
//! populating it, and counting resident frames.
#![expect(
    unsafe_code,
    reason = "giving memory back writes zeros to it, which its owner alone may"
)]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt};

use memmap2::{Advice, MmapOptions, MmapRaw, UncheckedAdvice};
use plimsoll_mm::units::Pages;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};

use super::page_bytes;

/// A file in memory (Linux: `memfd_create`), of a size that cannot change.
#[derive(Debug)]
pub(super) struct MemoryFile(File);

impl MemoryFile {
    pub(super) fn new(name: &str, bytes: u64) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(rustix::fs::memfd_create(name, flags)?);
        file.set_len(bytes)?;
        let size = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, size)?;
        Ok(Self(file))
    }

    pub(super) fn map(&self) -> io::Result<MmapRaw> {
        MmapOptions::new().map_raw(&self.0)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Frees the memory of a range of the file. The caller is the only user of the range.
    pub(super) fn give_back(&self, offset: u64, bytes: u64) -> io::Result<()> {
        kernel_pages_are_frames()?;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&self.0, flags, offset, bytes)?)
    }

    /// Returns the number of frames for which the file has memory. Frames of the file outside the
    /// arena count too: another process may have touched them.
    pub(super) fn resident(&self) -> io::Result<Pages> {
        /// The unit of `st_blocks`, in bytes.
        const BLOCK_BYTES: u64 = 512;
        let bytes = self.0.metadata()?.blocks() * BLOCK_BYTES;
        let frames = u32::try_from(bytes / page_bytes() as u64);
        Ok(Pages(frames.unwrap_or(u32::MAX)))
    }
}

pub(super) fn leave_out_of_forks(map: &MmapRaw) -> io::Result<()> {
    map.advise(Advice::DontFork)
}

pub(super) fn give_back(map: &MmapRaw, offset: usize, bytes: usize) -> io::Result<()> {
    // `memmap2` rounds the start of the range down to a multiple of the kernel's page size. If the
    // kernel's pages were larger than a frame, neighbouring frames would lose their memory too.
    kernel_pages_are_frames()?;
    // SAFETY: the range is inside the mapping and consists of whole pages. The kernel writes zeros
    // to it, as a write through a raw pointer would. This code never creates a reference to the
    // mapping, and the caller of `Arena::give_back` guarantees that no other reference exists.
    unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, offset, bytes) }
}

pub(super) fn populate(map: &MmapRaw, offset: usize, bytes: usize) -> io::Result<()> {
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
