//! Builds kernels to record: Debian's packaged source, configured for recordings at a chosen HZ,
//! with or without semantic patches.
//!
//! ```text
//! build/source/6.12/            the packaged source, unpacked and patched in place;
//!                               files that a patch changes are kept unpatched too
//! build/6.12-hz1000/            objects; each configuration has a folder, kept for the next build
//! kernels/6.12-hz1000-phased/   boot/vmlinuz-RELEASE, boot/config-RELEASE, recipe.txt
//! ```
//!
//! An interrupted build resumes where it stopped. Only one build at a time can use the folder.

mod compile;
mod config;
mod error;
mod semantic;
mod source;
mod tools;

use std::fs::{self, File, TryLockError};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::Command;

use self::compile::Compiled;
pub use self::error::Error;
pub use self::semantic::{SemanticPatch, names};
use self::source::Source;
pub use self::tools::Tools;

/// The number of timer interrupts per second with which a kernel is built (`CONFIG_HZ`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// 250 timer interrupts per second, as in Debian's own kernels.
    Hz250,
    /// 1000 timer interrupts per second.
    Hz1000,
}

impl Rate {
    /// Returns the number of timer interrupts per second.
    #[must_use]
    pub const fn hz(self) -> u32 {
        match self {
            Self::Hz250 => 250,
            Self::Hz1000 => 1000,
        }
    }
}

/// Whether the kernel is built with runtime checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Checks {
    Off,
    /// Checks locks (lockdep), lists, timers, work items and the memory management (`DEBUG_VM`).
    On,
}

/// The kernel to build: its series, its configuration and its patches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    series: String,
    rate: Rate,
    checks: Checks,
    patches: Vec<SemanticPatch>,
}

impl Recipe {
    /// Makes a recipe for a kernel of `series`, such as `6.12`, with `patches`. A patch that is
    /// named twice is applied once.
    ///
    /// # Errors
    ///
    /// [`Error::Asked`] if `series` is not the name of a kernel series.
    pub fn new(series: &str, rate: Rate, mut patches: Vec<SemanticPatch>) -> Result<Self, Error> {
        source::check_series(series)?;
        patches.sort_by(|one, other| one.name.cmp(&other.name));
        patches.dedup_by(|one, other| one.name == other.name);
        Ok(Self {
            series: series.to_owned(),
            rate,
            checks: Checks::Off,
            patches,
        })
    }

    /// Returns the recipe for the same kernel with runtime checks. That kernel logs a warning if a
    /// rule of locks, lists, timers, work items or memory management (`DEBUG_VM`) is broken.
    #[must_use]
    pub fn checked(self) -> Self {
        let checks = Checks::On;
        Self { checks, ..self }
    }

    /// Returns the name of the kernel's folder, such as `6.12-hz1000-bounded-phased`.
    #[must_use]
    pub fn name(&self) -> String {
        self.unpatched() + &self.patch_names()
    }

    fn unpatched(&self) -> String {
        format!("{}-{}", self.series, self.configuration())
    }

    /// Returns the part of the folder's name that describes the configuration: `hz1000` or
    /// `hz1000-debug`.
    fn configuration(&self) -> String {
        let checks = match self.checks {
            Checks::Off => "",
            Checks::On => "-debug",
        };
        format!("hz{}{checks}", self.rate.hz())
    }

    /// Returns the names of the patches, with a `-` before each.
    fn patch_names(&self) -> String {
        self.patches
            .iter()
            .map(|patch| format!("-{}", patch.name))
            .collect()
    }
}

/// The progress of a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildEvent<'a> {
    /// A long step begins; the text names it for the user.
    Begins(&'a str),
    /// An object was compiled, or compiling begins.
    Compiled {
        /// The number of objects compiled since the build began.
        done: u64,
        /// The approximate number of objects to compile in this build; `None` if it is not known.
        left: Option<u64>,
    },
}

/// A finished kernel in its folder below the cache. It can be booted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Built {
    /// The compressed image.
    pub image: PathBuf,
    /// The release, as `uname -r` will print it.
    pub release: String,
    /// The package whose source was compiled.
    pub package: String,
}

/// Builds the kernel of `recipe` below `cache`, with `jobs` compilers in parallel.
///
/// # Errors
///
/// If something must be installed first, the recipe does not fit the packaged source, another
/// build uses the folder, or a step fails.
pub fn build(
    tools: &Tools,
    recipe: &Recipe,
    cache: &Path,
    jobs: NonZeroUsize,
    told: &mut dyn FnMut(BuildEvent<'_>),
) -> Result<Built, Error> {
    if !cfg!(target_arch = "x86_64") {
        let text =
            "only x86-64 kernels can be built, and the compiler of this computer builds others";
        return Err(Error::Asked(text.to_owned()));
    }
    tools.check(!recipe.patches.is_empty())?;
    let folder = cache.join("build");
    let _lock = lock(&folder)?;
    let source = source::source(tools, &recipe.series, &folder.join("source"), told)?;
    let objects = folder.join(recipe.unpatched());
    told(BuildEvent::Begins("configuring"));
    config::configure(tools, &source, recipe, &objects)?;
    if !recipe.patches.is_empty() {
        told(BuildEvent::Begins("applying semantic patches"));
    }
    semantic::patch(tools, &source, &recipe.patches)?;
    let local = format!(
        "-plimsoll-{}{}",
        recipe.configuration(),
        recipe.patch_names()
    );
    let compiled = compile::compile(tools, &source, &objects, &local, jobs, told)?;
    keep(recipe, &source, &compiled, &objects, &cache.join("kernels"))
}

/// Puts a compiled kernel into its folder below `kernels`. The folder gets its name by a rename as
/// the last step, so a folder of this name is always complete.
fn keep(
    recipe: &Recipe,
    source: &Source,
    compiled: &Compiled,
    objects: &Path,
    kernels: &Path,
) -> Result<Built, Error> {
    let Compiled { image, release } = compiled;
    let (kept, draft) = (
        kernels.join(recipe.name()),
        kernels.join(format!(".{}", recipe.name())),
    );
    for old in [&draft, &kept] {
        if old.exists() {
            fs::remove_dir_all(old).map_err(Error::file("remove", old))?;
        }
    }
    let boot = draft.join("boot");
    fs::create_dir_all(&boot).map_err(Error::file("make", &boot))?;
    let text = format!(
        "kernel {release}\nsource {}\nHZ {}\nchecks {}\nsemantic patches{}\n",
        source.package,
        recipe.rate.hz(),
        match recipe.checks {
            Checks::Off => "off",
            Checks::On => "on",
        },
        if recipe.patches.is_empty() {
            " none".to_owned()
        } else {
            recipe.patch_names().replace('-', " ")
        }
    );
    let about = draft.join("recipe.txt");
    fs::write(&about, text).map_err(Error::file("write", &about))?;
    let name = format!("vmlinuz-{release}");
    for (from, to) in [
        (image, boot.join(&name)),
        (
            &objects.join(".config"),
            boot.join(format!("config-{release}")),
        ),
    ] {
        fs::copy(from, to).map_err(Error::file("copy", from))?;
    }
    fs::rename(&draft, &kept).map_err(Error::file("rename", &draft))?;
    Ok(Built {
        image: kept.join("boot").join(name),
        release: release.clone(),
        package: source.package.clone(),
    })
}

/// Locks the folder, because two concurrent builds would patch each other's source.
fn lock(folder: &Path) -> Result<File, Error> {
    fs::create_dir_all(folder).map_err(Error::file("make", folder))?;
    let path = folder.join("lock");
    let file = File::create(&path).map_err(Error::file("write", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::Asked(format!(
            "another `plimsoll linux build` uses {}: wait until it ends, or name another --cache",
            folder.display()
        ))),
        Err(TryLockError::Error(error)) => Err(Error::file("lock", &path)(error)),
    }
}

impl Tools {
    /// Returns a `make` command for the kernel in `source` that writes all its output below
    /// `folder`.
    fn make(&self, source: &Path, folder: &Path) -> Command {
        let mut command = self.command("make");
        command.arg("-C").arg(source);
        let mut out = std::ffi::OsString::from("O=");
        out.push(folder);
        command.arg(out);
        // Variables that a shell exports for other builds must not change this build.
        for variable in ["MAKEFLAGS", "ARCH", "CROSS_COMPILE", "KBUILD_OUTPUT"] {
            command.env_remove(variable);
        }
        command
    }
}
