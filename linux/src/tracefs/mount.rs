//! Finds tracefs. If it is not mounted, mounts it while the recorder needs it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::record::RecordError;

/// The usual mount point of tracefs.
const USUAL: &str = "/sys/kernel/tracing";

/// The mounted tracefs. If this program mounted tracefs, dropping this value unmounts it.
#[derive(Debug)]
pub(crate) struct Tracefs {
    root: PathBuf,
    mounted: Mounted,
}

#[derive(Debug, PartialEq, Eq)]
enum Mounted {
    ByOthers,
    ByUs,
}

impl Tracefs {
    /// Finds tracefs, or mounts it if it is not mounted.
    pub(crate) fn find() -> Result<Self, RecordError> {
        let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
        if let Some(root) = mounted_at(&mounts) {
            return Self::checked(root, Mounted::ByOthers);
        }
        if !Path::new(USUAL).is_dir() {
            return Err(RecordError::NoTracefs);
        }
        match mount(c"tracefs", USUAL, c"tracefs", MountFlags::empty(), None) {
            Ok(()) => Self::checked(PathBuf::from(USUAL), Mounted::ByUs),
            Err(Errno::NODEV) => Err(RecordError::NoTracefs),
            Err(errno) => Err(RecordError::of_tracefs(USUAL, errno.into())),
        }
    }

    fn checked(root: PathBuf, mounted: Mounted) -> Result<Self, RecordError> {
        let tracefs = Self { root, mounted };
        let instances = tracefs.root.join("instances");
        match fs::read_dir(&instances) {
            Ok(_) => Ok(tracefs),
            Err(error) => Err(RecordError::of_tracefs(&instances, error)),
        }
    }

    /// Returns a tracefs that is only a folder, for tests.
    #[cfg(test)]
    pub(crate) fn at(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            mounted: Mounted::ByOthers,
        }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Reads a file of tracefs; `file` is its path below the mount point.
    pub(crate) fn read(&self, file: &str) -> io::Result<String> {
        super::read(&self.root.join(file))
    }
}

impl Drop for Tracefs {
    fn drop(&mut self) {
        if self.mounted == Mounted::ByUs {
            // If another process uses tracefs by now, this call fails and tracefs stays mounted,
            // which does no harm.
            let _ = unmount(&self.root, UnmountFlags::empty());
        }
    }
}

/// Returns the first mount point of tracefs in `/proc/mounts`.
fn mounted_at(mounts: &str) -> Option<PathBuf> {
    let place = |line: &str| {
        let mut words = line.split(' ');
        let (_, place, kind) = (words.next()?, words.next()?, words.next()?);
        // The kernel prints a space in a path as its octal number.
        (kind == "tracefs").then(|| PathBuf::from(place.replace("\\040", " ")))
    };
    mounts.lines().find_map(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracefs_is_found_by_its_kind_and_its_path_may_have_spaces() {
        let mounts = "proc /proc proc rw 0 0\nwhatever /mnt/a\\040b tracefs rw 0 0\n";
        assert_eq!(mounted_at(mounts), Some(PathBuf::from("/mnt/a b")));
        assert_eq!(mounted_at("tracefs /tmp tmpfs rw 0 0\n"), None);
    }
}
