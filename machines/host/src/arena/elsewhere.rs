//! Stand-ins, on systems other than Linux, for the parts of an arena that only Linux supports. They
//! return an error, except [`leave_out_of_forks`], which does nothing.

use std::io;
#[cfg(unix)]
use std::os::fd::BorrowedFd;

use memmap2::MmapRaw;
use plimsoll_mm::units::Pages;

/// A file in memory. This system has no such files, so the type has no values.
#[derive(Debug)]
pub(super) enum MemoryFile {}

impl MemoryFile {
    pub(super) fn new(_name: &str, _bytes: u64) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn map(&self) -> io::Result<MmapRaw> {
        match *self {}
    }

    #[cfg(unix)]
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        match *self {}
    }

    pub(super) fn give_back(&self, _offset: u64, _bytes: u64) -> io::Result<()> {
        match *self {}
    }

    pub(super) fn resident(&self) -> io::Result<Pages> {
        match *self {}
    }
}

/// Does nothing, so a forked child inherits the memory.
pub(super) fn leave_out_of_forks(_map: &MmapRaw) -> io::Result<()> {
    Ok(())
}

pub(super) fn give_back(_map: &MmapRaw, _offset: usize, _bytes: usize) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(super) fn populate(_map: &MmapRaw, _offset: usize, _bytes: usize) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(super) fn resident(_first: usize, _pages: Pages) -> io::Result<Pages> {
    Err(io::ErrorKind::Unsupported.into())
}
