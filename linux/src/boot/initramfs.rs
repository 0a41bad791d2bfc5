//! The guest's initramfs: Plimsoll's own program and libraries, the plan (instructions for the
//! guest's first process), kernel modules, and the user's load if there is one.
//!
//! The initramfs is a cpio archive in the format `newc`, which the kernel unpacks into memory. The
//! archive is not compressed, because decompressing the archive would cost the guest more time than
//! reading a larger archive.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

use cpio::newc::{self, ModeFileType};

use super::elf::{self, Program};
use super::{Error, libraries};
use crate::guest::plan::{PLAN, Plan, USER_LOAD};
use crate::package::modules::Module;

/// The path of this program in the guest. The program is also the guest's first process.
pub(crate) const PROGRAM: &str = "/plimsoll/plimsoll";
/// The folder of kernel modules in the guest.
pub(crate) const MODULES: &str = "/plimsoll/modules";
/// The path of busybox in the guest. Busybox runs scripts.
pub(crate) const BUSYBOX: &str = "/bin/busybox";
/// The folder of libraries in the guest.
pub(crate) const LIBRARIES: &str = "/lib";
/// Folders on which the first process mounts file systems.
const MOUNT_POINTS: [&str; 5] = ["/dev", "/proc", "/sys", "/tmp", "/run"];

/// The contents of an initramfs besides this program and its libraries.
#[derive(Debug)]
pub(crate) struct Contents<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) modules: &'a [Module],
    /// The program or script that the user supplies, if it is the load.
    pub(crate) load: Option<Vec<u8>>,
    /// `busybox`, if the load is a script.
    pub(crate) busybox: Option<Vec<u8>>,
}

/// Writes the archive of the initramfs.
///
/// # Errors
///
/// If this program or one of its libraries cannot be read, or the archive cannot be written.
pub(crate) fn write(
    contents: &Contents<'_>,
    to: &mut impl Write,
    name: &Path,
) -> Result<(), Error> {
    let this = Path::new("/proc/self/exe");
    let program = fs::read(this).map_err(Error::file("read", this))?;
    let mut archive = Archive::new(to);
    let io = |result: io::Result<()>| result.map_err(Error::file("write", name));
    for folder in MOUNT_POINTS {
        io(archive.folder(folder))?;
    }
    for library in libraries::of_this_process()? {
        let bytes = fs::read(&library.file).map_err(Error::file("read", &library.file))?;
        for name in library.names {
            io(archive.file(&format!("{LIBRARIES}/{name}"), &bytes))?;
        }
    }
    if let Program::Dynamic(loader) = elf::kind(&program) {
        let name = loader.rsplit('/').next().unwrap_or_default();
        // The program names its loader by a path of this computer. The archive has the loader in
        // `LIBRARIES`, so it gets a link from that path, unless the two paths are the same.
        if loader != format!("{LIBRARIES}/{name}") {
            io(archive.link(&loader, &format!("{LIBRARIES}/{name}")))?;
        }
    }
    io(archive.file(PROGRAM, &program))?;
    io(archive.file(PLAN, contents.plan.to_string().as_bytes()))?;
    for module in contents.modules {
        let name = format!("{MODULES}/{}.ko", module.name);
        io(archive.file(&name, &module.bytes))?;
    }
    if let Some(load) = &contents.load {
        io(archive.file(USER_LOAD, load))?;
    }
    if let Some(busybox) = &contents.busybox {
        io(archive.file(BUSYBOX, busybox))?;
        io(archive.link("/bin/sh", BUSYBOX))?;
    }
    io(archive.finish())
}

/// A `newc` archive that is being written.
struct Archive<'a, W: Write> {
    to: &'a mut W,
    names: BTreeSet<String>,
    inode: u32,
}

impl<'a, W: Write> Archive<'a, W> {
    fn new(to: &'a mut W) -> Self {
        Self {
            to,
            names: BTreeSet::new(),
            inode: 0,
        }
    }

    /// Adds a folder and all its parent folders.
    fn folder(&mut self, path: &str) -> io::Result<()> {
        let ends = path.match_indices('/').map(|(at, _)| at).skip(1);
        for end in ends.chain([path.len()]) {
            self.entry(&path[..end], ModeFileType::Directory, 0o755, &[])?;
        }
        Ok(())
    }

    /// Adds a file that all users may execute.
    fn file(&mut self, path: &str, bytes: &[u8]) -> io::Result<()> {
        self.folder_of(path)?;
        self.entry(path, ModeFileType::Regular, 0o755, bytes)
    }

    fn link(&mut self, path: &str, target: &str) -> io::Result<()> {
        self.folder_of(path)?;
        self.entry(path, ModeFileType::Symlink, 0o777, target.as_bytes())
    }

    fn folder_of(&mut self, path: &str) -> io::Result<()> {
        match path.rsplit_once('/') {
            Some((folder, _)) if !folder.is_empty() => self.folder(folder),
            _ => Ok(()),
        }
    }

    fn entry(&mut self, path: &str, kind: ModeFileType, mode: u32, bytes: &[u8]) -> io::Result<()> {
        if !self.names.insert(path.to_owned()) {
            return Ok(());
        }
        self.inode += 1;
        let size = u32::try_from(bytes.len()).map_err(|_| {
            io::Error::other(format!("{path} has more than the 4 GiB of this format"))
        })?;
        let name = path.trim_start_matches('/');
        let builder = newc::Builder::new(name).ino(self.inode).mode(mode);
        let mut entry = builder.set_mode_file_type(kind).write(&mut *self.to, size);
        entry.write_all(bytes)?;
        entry.finish().map(drop)
    }

    fn finish(self) -> io::Result<()> {
        newc::trailer(self.to).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read;

    use super::*;
    use crate::guest::plan::Work;

    /// Returns the mode and bytes of every entry, by name.
    fn read(mut archive: &[u8]) -> BTreeMap<String, (u32, Vec<u8>)> {
        let mut entries = BTreeMap::new();
        loop {
            let mut reader = newc::Reader::new(archive).unwrap();
            if reader.entry().is_trailer() {
                return entries;
            }
            let (name, mode) = (reader.entry().name().to_owned(), reader.entry().mode());
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes).unwrap();
            archive = reader.finish().unwrap();
            assert!(entries.insert(name, (mode, bytes)).is_none());
        }
    }

    fn plan() -> Plan {
        Plan {
            work: Work::Load("fault".to_owned(), Vec::new()),
            modules: Vec::new(),
            rss: false,
            holds: false,
            buffer_mib: std::num::NonZeroU32::MIN,
            command: String::new(),
        }
    }

    #[test]
    fn the_archive_has_this_program_its_libraries_and_the_plan() {
        let contents = Contents {
            plan: &plan(),
            modules: &[Module {
                name: "zram".to_owned(),
                bytes: b"module".to_vec(),
            }],
            load: Some(b"#!/bin/sh\n".to_vec()),
            busybox: Some(b"busybox".to_vec()),
        };
        let mut bytes = Vec::new();
        write(&contents, &mut bytes, Path::new("initramfs")).unwrap();
        let entries = read(&bytes);
        let program = fs::read("/proc/self/exe").unwrap();
        assert_eq!(entries["plimsoll/plimsoll"], (0o100_755, program));
        assert_eq!(entries["plimsoll/plan"].1, plan().to_string().as_bytes());
        assert_eq!(entries["plimsoll/modules/zram.ko"].1, b"module");
        assert_eq!(entries["plimsoll/load"].1, b"#!/bin/sh\n");
        assert_eq!(entries["bin/sh"], (0o120_777, b"/bin/busybox".to_vec()));
        assert_eq!(entries["dev"], (0o040_755, Vec::new()));
        if cfg!(target_env = "gnu") {
            assert!(entries.keys().any(|name| name.starts_with("lib/libc.so")));
        }
        let loader = elf::kind(&entries["plimsoll/plimsoll"].1);
        if let Program::Dynamic(loader) = loader {
            assert!(
                entries.contains_key(loader.trim_start_matches('/')),
                "{loader}"
            );
        }
    }

    #[test]
    fn a_folder_comes_before_what_is_in_it_and_once() {
        let mut bytes = Vec::new();
        let mut archive = Archive::new(&mut bytes);
        archive.file("/a/b/c", b"x").unwrap();
        archive.file("/a/b/d", b"yy").unwrap();
        archive.finish().unwrap();
        let place = |name: &[u8]| bytes.windows(name.len()).position(|window| window == name);
        assert!(place(b"a\0") < place(b"a/b\0") && place(b"a/b\0") < place(b"a/b/c\0"));
        assert_eq!(read(&bytes).len(), 4);
    }
}
