//! Kernel modules for a guest, in the order in which they must be loaded.
//!
//! A package contains no list of module dependencies, because the list is generated when the
//! package is installed. So this module reads the dependencies from `depends=` in each kernel
//! module.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use lzma_rust2::XzReader;

use super::Kernel;
use crate::boot::Error;

/// The recursion limit, which exceeds any real chain of dependencies. Without this limit, modules
/// that need each other would cause endless recursion.
const DEPTH_MAX: usize = 16;

/// A module that is copied into a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// The module's name, such as `zram`.
    pub name: String,
    /// The module's ELF file, decompressed.
    pub bytes: Vec<u8>,
}

/// Returns the modules in `names` and all modules that they need, each after the modules that it
/// needs.
///
/// # Errors
///
/// If the kernel has no modules, or a module is missing or cannot be read.
pub fn in_order(kernel: &Kernel, names: &[String]) -> Result<Vec<Module>, Error> {
    let mut found = Vec::new();
    let Some(first) = names.first() else {
        return Ok(found);
    };
    let folder = kernel.modules.as_deref().ok_or_else(|| {
        Error::Asked(format!(
            "module {first} is needed, and {} has no modules beside it",
            kernel.image.display()
        ))
    })?;
    let files = files(folder)?;
    let built_in = fs::read_to_string(folder.join("modules.builtin")).unwrap_or_default();
    let mut search = Search {
        files: &files,
        built_in: &built_in,
        folder,
        found: &mut found,
    };
    for name in names {
        search.add(&canonical(name), 0)?;
    }
    Ok(found)
}

struct Search<'a> {
    files: &'a [PathBuf],
    built_in: &'a str,
    folder: &'a Path,
    found: &'a mut Vec<Module>,
}

impl Search<'_> {
    fn add(&mut self, name: &str, depth: usize) -> Result<(), Error> {
        let there = self.found.iter().any(|module| module.name == name);
        let mut built_in = self.built_in.lines().map(Path::new);
        if there
            || depth > DEPTH_MAX
            || built_in.any(|path| module_name(path).as_deref() == Some(name))
        {
            return Ok(());
        }
        let mut files = self.files.iter();
        let file = files.find(|path| module_name(path).as_deref() == Some(name));
        let file = file.ok_or_else(|| {
            let folder = self.folder.display();
            Error::Asked(format!("there is no module {name} in {folder}"))
        })?;
        let bytes = unpacked(file)?;
        for needed in depends(&bytes) {
            self.add(&needed, depth + 1)?;
        }
        let name = name.to_owned();
        self.found.push(Module { name, bytes });
        Ok(())
    }
}

/// Returns the files of all modules below a folder.
fn files(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    // The loop ends: links are not followed, so each folder is visited once.
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).map_err(Error::file("read", &folder))?;
        for entry in entries {
            let entry = entry.map_err(Error::file("read", &folder))?;
            let kind = entry.file_type().map_err(Error::file("read", &folder))?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if module_name(&entry.path()).is_some() {
                files.push(entry.path());
            }
        }
    }
    Ok(files)
}

/// Returns the name of the module in a file such as `kernel/mm/zsmalloc.ko.xz`; `None` if the file
/// is not a module.
fn module_name(file: &Path) -> Option<String> {
    let name = file.file_name()?.to_str()?;
    let (name, rest) = name.split_once(".ko")?;
    ["", ".xz"].contains(&rest).then(|| canonical(name))
}

/// Returns the form of a module's name that is used for comparison, because users and files write
/// both `-` and `_`.
fn canonical(name: &str) -> String {
    name.replace('-', "_")
}

fn unpacked(file: &Path) -> Result<Vec<u8>, Error> {
    let bytes = fs::read(file).map_err(Error::file("read", file))?;
    if file.extension().is_none_or(|extension| extension != "xz") {
        return Ok(bytes);
    }
    let mut unpacked = Vec::new();
    let mut reader = XzReader::new(bytes.as_slice(), true);
    reader
        .read_to_end(&mut unpacked)
        .map_err(Error::file("unpack", file))?;
    Ok(unpacked)
}

/// Returns the modules that a module needs. The module file contains `depends=a,b` in a section of
/// zero-terminated texts.
fn depends(module: &[u8]) -> Vec<String> {
    const NAME: &[u8] = b"\0depends=";
    let at = module.windows(NAME.len()).position(|window| window == NAME);
    let Some(at) = at else {
        return Vec::new();
    };
    let text = module[at + NAME.len()..].split(|&byte| byte == 0).next();
    let text = String::from_utf8_lossy(text.unwrap_or_default());
    let names = text.split(',').filter(|name| !name.is_empty());
    names.map(canonical).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(modules: &[(&str, &str)]) -> (tempfile::TempDir, Kernel) {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("kernel/drivers");
        fs::create_dir_all(&below).unwrap();
        for (name, depends) in modules {
            let text = format!("ELF\0depends={depends}\0name={name}\0");
            fs::write(below.join(format!("{name}.ko")), text).unwrap();
        }
        fs::write(
            folder.path().join("modules.builtin"),
            "kernel/lib/crc16.ko\n",
        )
        .unwrap();
        let kernel = Kernel {
            image: "vmlinuz".into(),
            modules: Some(folder.path().to_owned()),
        };
        (folder, kernel)
    }

    fn names(kernel: &Kernel, names: &[&str]) -> Result<Vec<String>, String> {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        match in_order(kernel, &names) {
            Ok(modules) => Ok(modules.into_iter().map(|module| module.name).collect()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn each_module_comes_behind_what_it_needs_and_once() {
        let (_folder, kernel) = kernel(&[
            ("zram", "zsmalloc,lz4-compress,crc16"),
            ("zsmalloc", ""),
            ("lz4_compress", "zsmalloc"),
        ]);
        assert_eq!(
            names(&kernel, &["zram", "zsmalloc"]).unwrap(),
            ["zsmalloc", "lz4_compress", "zram"]
        );
        assert!(names(&kernel, &[]).unwrap().is_empty());
    }

    #[test]
    fn a_module_that_is_not_there_is_named() {
        let (_folder, with) = kernel(&[("a", "b"), ("c", "c")]);
        assert!(
            names(&with, &["a"])
                .unwrap_err()
                .starts_with("there is no module b in ")
        );
        assert_eq!(names(&with, &["c"]).unwrap().last().unwrap(), "c");
        let without = Kernel {
            modules: None,
            ..with
        };
        assert!(
            names(&without, &["a"])
                .unwrap_err()
                .ends_with("has no modules beside it")
        );
    }

    #[test]
    fn a_packed_module_that_is_cut_off_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cut.ko.xz");
        fs::write(&file, b"\xfd7zXZ\0\0\x04").unwrap();
        let error = unpacked(&file).unwrap_err();
        assert!(error.to_string().starts_with("cannot unpack "), "{error}");
    }
}
