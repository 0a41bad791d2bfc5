//! Tests building a kernel, with shell scripts in place of apt, tar, make and spatch: which steps
//! run, which files are kept, which files an interruption leaves, and which text each error has.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::fs;
use std::num::NonZeroUsize;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use plimsoll_linux::build::{self, BuildEvent, Built, Error, Rate, Recipe, SemanticPatch, Tools};
use tempfile::TempDir;

/// The scripts that replace real programs; each logs its call. `apt-get` makes an archive, `tar`
/// makes a small source tree, `make` configures and compiles by copying, and `spatch` replaces a
/// word.
const SCRIPTS: [(&str, &str); 11] = [
    ("apt-get", "echo archive > \"$2_6.12.9-1_all.deb\""),
    ("dpkg-deb", "mkdir -p $3/usr/src"),
    (
        "tar",
        "mkdir -p $5/mm; echo 'int old;' > $5/mm/vmstat.c; echo 'int lock;' > $5/mm/page_alloc.c",
    ),
    (
        "make",
        "source=$2; out=${3#O=}
for word in \"$@\"; do case $word in LOCALVERSION=*) local=${word#*=};; esac; goal=$word; done
case \"$*\" in
*tinyconfig) echo CONFIG_TINY=y > $out/.config;;
*olddefconfig) sed -i '/=n$/d' $out/.config;;
*bzImage) echo '  CC      mm/vmstat.o'; echo '  LD      vmlinux'
  mkdir -p $out/arch/x86/boot; cat $source/mm/*.c > $out/arch/x86/boot/bzImage;;
*kernelrelease*) echo 6.12.9$local;;
esac",
    ),
    ("spatch", "sed -i s/old/new/ \"$4\""),
    ("xz", ""),
    ("gcc", ""),
    ("ld", ""),
    ("flex", ""),
    ("bison", ""),
    ("bc", ""),
];

struct Bench {
    folder: TempDir,
}

impl Bench {
    fn new() -> Self {
        let bench = Self {
            folder: tempfile::tempdir().expect("a temporary folder"),
        };
        fs::create_dir(bench.path("bin")).expect("a writable folder");
        fs::create_dir(bench.path("kernel")).expect("a writable folder");
        for (name, body) in SCRIPTS {
            bench.script(name, body);
        }
        bench.patch(
            "fresh",
            "// Apply to: mm/vmstat.c\n// Expect: 1 new\n// Expect: 0 old\n",
        );
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn script(&self, name: &str, body: &str) {
        let (path, calls) = (self.path("bin").join(name), self.path("calls"));
        let text = format!(
            "#!/bin/sh\necho \"{name} $*\" >> {}\n{body}\n",
            calls.display()
        );
        fs::write(&path, text).expect("a writable folder");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a writable folder");
    }

    fn patch(&self, name: &str, text: &str) {
        fs::write(self.path("kernel").join(format!("{name}.cocci")), text)
            .expect("a writable folder");
    }

    fn build(&self, patches: &[&str]) -> Result<Built, Error> {
        self.watched(patches, &mut |_| {})
    }

    fn watched(
        &self,
        patches: &[&str],
        told: &mut dyn FnMut(BuildEvent<'_>),
    ) -> Result<Built, Error> {
        self.made(&self.recipe(patches)?, told)
    }

    fn recipe(&self, patches: &[&str]) -> Result<Recipe, Error> {
        let read = |name: &&str| SemanticPatch::read(name, &self.path("kernel"));
        let patches: Result<Vec<_>, _> = patches.iter().map(read).collect();
        Recipe::new("6.12", Rate::Hz1000, patches?)
    }

    fn made(&self, recipe: &Recipe, told: &mut dyn FnMut(BuildEvent<'_>)) -> Result<Built, Error> {
        let path = format!("{}:/usr/bin:/bin", self.path("bin").display());
        let jobs = NonZeroUsize::new(2).expect("two");
        build::build(&Tools::on(path), recipe, &self.path("cache"), jobs, told)
    }

    /// Returns the programs called since the previous call of this function.
    fn calls(&self) -> String {
        let text = fs::read_to_string(self.path("calls")).unwrap_or_default();
        let _ = fs::remove_file(self.path("calls"));
        let names = text.lines().map(|line| match line.strip_prefix("make ") {
            Some(rest) => rest
                .trim_end_matches(" -s")
                .rsplit(' ')
                .next()
                .unwrap_or_default(),
            None => line.split(' ').next().unwrap_or_default(),
        });
        // The build calls the compiler only to look for a header, so this call is not a step of the
        // build.
        names
            .filter(|name| *name != "gcc")
            .collect::<Vec<_>>()
            .join(" ")
    }

    fn source(&self, file: &str) -> String {
        fs::read_to_string(self.path("cache/build/source/6.12").join(file))
            .expect("a readable file")
    }
}

#[test]
fn a_kernel_is_fetched_configured_patched_compiled_and_kept() {
    let bench = Bench::new();
    let mut steps = Vec::new();
    let built = bench
        .watched(&["fresh"], &mut |step| {
            steps.push(match step {
                BuildEvent::Begins(what) => what.to_owned(),
                BuildEvent::Compiled { done, .. } => done.to_string(),
            });
        })
        .unwrap();
    assert_eq!(built.release, "6.12.9-plimsoll-hz1000-fresh");
    assert_eq!(built.package, "linux-source-6.12_6.12.9-1_all");
    let kernel = bench.path("cache/kernels/6.12-hz1000-fresh");
    assert_eq!(
        built.image,
        kernel.join("boot/vmlinuz-6.12.9-plimsoll-hz1000-fresh")
    );
    assert_eq!(
        fs::read_to_string(&built.image).unwrap(),
        "int lock;\nint new;\n"
    );
    let config = kernel.join("boot/config-6.12.9-plimsoll-hz1000-fresh");
    let config = fs::read_to_string(config).unwrap();
    assert!(config.starts_with("CONFIG_TINY=y\n") && config.ends_with("CONFIG_HZ_1000=y\n"));
    let about = fs::read_to_string(kernel.join("recipe.txt")).unwrap();
    assert!(
        about.ends_with("HZ 1000\nchecks off\nsemantic patches fresh\n"),
        "{about}"
    );
    assert_eq!(
        bench.calls(),
        "apt-get dpkg-deb tar tinyconfig olddefconfig spatch bzImage kernelrelease"
    );
    assert_eq!(steps[steps.len() - 2..], ["0", "1"]);
}

#[test]
fn what_is_there_is_not_made_again_and_a_patch_can_be_left_out() {
    let bench = Bench::new();
    bench.build(&["fresh"]).unwrap();
    bench.calls();
    let plain = bench.build(&[]).unwrap();
    assert_eq!(plain.release, "6.12.9-plimsoll-hz1000");
    assert_eq!(bench.calls(), "bzImage kernelrelease");
    assert_eq!(bench.source("mm/vmstat.c"), "int old;\n");
    // The kernel with the patch `fresh` is kept beside the unpatched kernel.
    assert!(bench.path("cache/kernels/6.12-hz1000-fresh/boot").is_dir());
    // A build does not rewrite a file that is already right; otherwise `make` would compile this
    // file again.
    let file = bench.path("cache/build/source/6.12/mm/vmstat.c");
    let before = fs::metadata(&file).unwrap().modified().unwrap();
    bench.build(&[]).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().modified().unwrap(), before);
}

#[test]
fn an_interrupted_step_is_done_again() {
    let bench = Bench::new();
    bench.script(
        "tar",
        "echo half > $5/Makefile; echo 'No space left on device' >&2; exit 2",
    );
    let text = bench.build(&[]).unwrap_err().to_string();
    assert!(
        text.contains("unpacking the source (2 GB are needed) failed"),
        "{text}"
    );
    assert!(text.ends_with("No space left on device"), "{text}");
    assert!(!bench.path("cache/build/source/6.12").exists());
    bench.script("tar", SCRIPTS[2].1);
    bench.build(&[]).unwrap();
    assert!(!bench.path("cache/build/source/6.12/Makefile").exists());
}

#[test]
fn a_compiler_that_fails_is_quoted_and_its_log_is_named() {
    let bench = Bench::new();
    let fails = SCRIPTS[3]
        .1
        .replace("*bzImage) ", "*bzImage) echo 'x.c:1: error'; exit 2;");
    bench.script("make", &fails);
    let error = bench.build(&[]).unwrap_err();
    let text = error.to_string();
    assert!(!error.is_bad_input());
    assert!(
        text.contains("6.12-hz1000/plimsoll.log") && text.ends_with("x.c:1: error"),
        "{text}"
    );
    assert!(!bench.path("cache/kernels").exists());
}

#[test]
fn a_patch_that_does_not_match_is_refused_and_nothing_is_compiled() {
    let bench = Bench::new();
    bench.patch("late", "// Apply to: mm/page_alloc.c\n// Expect: 2 new\n");
    let error = bench.build(&["late"]).unwrap_err();
    assert!(error.is_bad_input());
    let text = error.to_string();
    assert!(
        text.ends_with(
            "does not fit linux-source-6.12_6.12.9-1_all: `new` occurs 0 times in mm/page_alloc.c afterwards, not 2"
        ),
        "{text}"
    );
    assert!(!bench.calls().contains("bzImage"));
}

#[test]
fn an_unknown_series_and_a_series_that_is_none_say_what_to_do() {
    let bench = Bench::new();
    bench.script(
        "apt-get",
        "echo 'E: Unable to locate package' >&2; exit 100",
    );
    let text = bench.build(&[]).unwrap_err().to_string();
    assert!(
        text.contains("run `apt-get update`, or name another --series"),
        "{text}"
    );
    let text = Recipe::new("6.12;reboot", Rate::Hz250, Vec::new()).unwrap_err();
    assert!(text.is_bad_input());
}

#[test]
fn two_builds_do_not_share_a_folder() {
    let bench = Bench::new();
    let mut second = None;
    bench
        .watched(&[], &mut |_| {
            second.get_or_insert_with(|| bench.build(&[]).unwrap_err().to_string());
        })
        .unwrap();
    let text = second.expect("a step was told");
    assert!(
        text.contains("another `plimsoll linux build` uses"),
        "{text}"
    );
}

#[test]
fn naming_a_patch_twice_is_naming_it_once_and_order_does_not_matter() {
    let bench = Bench::new();
    bench.patch("also", "// Apply to: mm/vmstat.c\n// Expect: 1 new\n");
    let read = |name: &str| SemanticPatch::read(name, &bench.path("kernel")).unwrap();
    let name = |names: &[&str]| {
        let patches = names.iter().map(|name| read(name)).collect();
        Recipe::new("6.12", Rate::Hz250, patches).unwrap().name()
    };
    assert_eq!(name(&["fresh", "also", "fresh"]), "6.12-hz250-also-fresh");
    assert_eq!(name(&["also", "fresh"]), name(&["fresh", "also"]));
    assert_eq!(name(&[]), "6.12-hz250");
}

#[test]
fn a_kernel_with_checks_is_kept_beside_the_one_without() {
    let bench = Bench::new();
    let plain = bench.build(&[]).unwrap();
    let checked = bench.recipe(&["fresh"]).unwrap().checked();
    let checked = bench.made(&checked, &mut |_| {}).unwrap();
    assert_eq!(checked.release, "6.12.9-plimsoll-hz1000-debug-fresh");
    let config = bench.path("cache/build/6.12-hz1000-debug/.config");
    let config = fs::read_to_string(config).unwrap();
    assert!(config.contains("CONFIG_DEBUG_VM=y\n"), "{config}");
    let about = bench.path("cache/kernels/6.12-hz1000-debug-fresh/recipe.txt");
    assert!(fs::read_to_string(about).unwrap().contains("\nchecks on\n"));
    assert!(plain.image.is_file() && checked.image.is_file());
}
