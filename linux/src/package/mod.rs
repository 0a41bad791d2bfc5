//! The kernel to boot: a file that the user supplies, or a Debian package that is unpacked but not
//! installed.

pub mod cache;
pub mod debian;
pub mod modules;

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::boot::Error;

/// The kernel series with which recording was last checked.
pub const CHECKED_SERIES: &str = "6.12";

/// The offset at which an x86 kernel image has [`MAGIC`], in bytes.
const MAGIC_AT: u64 = 0x202;
const MAGIC: &[u8; 4] = b"HdrS";

/// A kernel that can be booted: its image and the folder of its modules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The compressed image, `vmlinuz`.
    pub image: PathBuf,
    /// The folder of the kernel's modules, if it exists.
    pub modules: Option<PathBuf>,
}

impl Kernel {
    /// Returns the kernel in `image`, with its modules if they are in the usual place:
    /// `../lib/modules/RELEASE` for `vmlinuz-RELEASE`.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or is not the image of an x86 kernel.
    pub fn of_file(image: &Path) -> Result<Self, Error> {
        let read = |source| Error::file("read", image)(source);
        let mut file = File::open(image).map_err(read)?;
        let mut magic = [0; MAGIC.len()];
        file.seek(SeekFrom::Start(MAGIC_AT)).map_err(read)?;
        if file.read_exact(&mut magic).is_err() || magic != *MAGIC {
            return Err(Error::Asked(format!(
                "{} is no kernel for x86: name a bzImage or vmlinuz",
                image.display()
            )));
        }
        let name = image.file_name().and_then(|name| name.to_str());
        let release = name
            .and_then(|name| name.split_once('-'))
            .map(|(_, release)| release);
        let boot = image.parent().unwrap_or(Path::new("."));
        let modules = |release: &str| boot.join("../lib/modules").join(release);
        Ok(Self {
            image: image.to_owned(),
            modules: release.map(modules).filter(|folder| folder.is_dir()),
        })
    }

    /// Returns the kernel that was unpacked in `folder`, whose image is `boot/vmlinuz-*`.
    ///
    /// # Errors
    ///
    /// If the folder has no kernel, or the kernel cannot be read.
    pub fn of_folder(folder: &Path) -> Result<Self, Error> {
        let boot = folder.join("boot");
        let entries = fs::read_dir(&boot).map_err(Error::file("read", &boot))?;
        let images = entries.flatten().map(|entry| entry.path());
        let is_image = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with("vmlinuz-") || name == "bzImage")
        };
        let image = images.filter(is_image).max().ok_or_else(|| {
            let boot = boot.display();
            Error::Asked(format!("there is no kernel in {boot}"))
        })?;
        Self::of_file(&image)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(path: &Path) {
        let mut bytes = vec![0; 0x400];
        bytes[0x202..0x206].copy_from_slice(MAGIC);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    #[test]
    fn a_kernel_brings_what_lies_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        image(&root.join("boot/vmlinuz-6.12.1-x"));
        fs::create_dir_all(root.join("lib/modules/6.12.1-x")).unwrap();
        let kernel = Kernel::of_folder(root).unwrap();
        assert!(kernel.modules.unwrap().is_dir());
        let lonely = root.join("bzImage");
        image(&lonely);
        let kernel = Kernel::of_file(&lonely).unwrap();
        assert_eq!(kernel.modules, None);
    }

    #[test]
    fn what_is_no_kernel_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("vmlinuz");
        for bytes in [vec![], b"#!/bin/sh\n".to_vec(), vec![0; 4096]] {
            fs::write(&file, bytes).unwrap();
            let error = Kernel::of_file(&file).unwrap_err();
            assert!(
                error.to_string().contains("is no kernel for x86"),
                "{error}"
            );
            assert!(error.is_bad_input());
        }
        let error = Kernel::of_file(&folder.path().join("none")).unwrap_err();
        assert!(error.to_string().starts_with("cannot read "), "{error}");
        Kernel::of_folder(folder.path()).unwrap_err();
    }
}
