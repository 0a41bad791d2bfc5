//! Sets probes where the kernel has no tracepoint: at the end of `alloc_pages_bulk`, at the end of
//! a round of reclaim by kswapd, and at the release of a lock that was taken with interrupts off.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process;

use crate::tracefs::Tracefs;

/// A probe at the end of a bulk allocation. The probed function has had several names; the newest
/// is first.
const BULK: Kind = Kind {
    name: "bulkret",
    places: &[
        ("r", "alloc_pages_bulk_noprof ret=$retval:u64"),
        ("r", "__alloc_pages_bulk ret=$retval:u64"),
    ],
};
/// The end of a round of reclaim by kswapd. If a compiler has inlined `balance_pgdat` into its only
/// caller, the probe is set on the function that `balance_pgdat` calls last. Other threads also
/// call this last function, so the recorder keeps only the calls by kswapd.
const KSWAPD_DONE: Kind = Kind {
    name: "kswapddone",
    places: &[("r", "balance_pgdat"), ("p", "psi_memstall_leave")],
};
/// The release of a lock. At the entry of an x86 function, the top of the stack is the return
/// address, so the field `caller` holds the return address.
const HOLD_END: Kind = Kind {
    name: "holdend",
    places: &[("p", "_raw_spin_unlock_irqrestore caller=$stack0:x64")],
};

/// A kind of probe, and the places where it may be set. The recorder uses the first place that the
/// kernel accepts.
struct Kind {
    name: &'static str,
    places: &'static [(&'static str, &'static str)],
}

/// A probe, which is removed when this value is dropped. Drop it after the instance that uses it.
#[derive(Debug)]
pub(crate) struct Probe {
    file: PathBuf,
    group: String,
    name: &'static str,
}

/// The reason why a probe could not be set.
#[derive(Debug)]
pub(crate) enum NoProbe {
    /// The kernel, or the architecture, does not support the probe.
    Unsupported,
    /// The kernel refused the probe.
    Refused(io::Error),
}

impl Probe {
    /// Sets the probe at the end of bulk allocations.
    pub(crate) fn bulk(tracefs: &Tracefs) -> Result<Self, NoProbe> {
        Self::set(tracefs, &BULK)
    }

    /// Sets the probe at the end of kswapd's rounds of reclaim. Other threads may trigger the probe
    /// too.
    pub(crate) fn kswapd_done(tracefs: &Tracefs) -> Result<Self, NoProbe> {
        Self::set(tracefs, &KSWAPD_DONE)
    }

    /// Sets the probe at the release of a lock. The field `caller` of the probe's events is the
    /// address to which the release returns.
    pub(crate) fn hold_end(tracefs: &Tracefs) -> Result<Self, NoProbe> {
        if !cfg!(target_arch = "x86_64") {
            return Err(NoProbe::Unsupported);
        }
        Self::set(tracefs, &HOLD_END)
    }

    fn set(tracefs: &Tracefs, kind: &Kind) -> Result<Self, NoProbe> {
        let file = tracefs.root().join("kprobe_events");
        if !file.exists() {
            return Err(NoProbe::Unsupported);
        }
        let group = format!("plimsoll_{}", process::id());
        let name = kind.name;
        let probe = Self { file, group, name };
        let mut refused = io::Error::from(io::ErrorKind::NotFound);
        for (at, place) in kind.places {
            let line = format!("{at}:{}/{name} {place}\n", probe.group);
            match probe.append(&line) {
                Ok(()) => return Ok(probe),
                Err(error) => refused = error,
            }
        }
        Err(NoProbe::Refused(refused))
    }

    /// Returns the folder of the probe's event, relative to the folder `events` of tracefs.
    pub(crate) fn event(&self) -> String {
        format!("{}/{}", self.group, self.name)
    }

    fn append(&self, line: &str) -> io::Result<()> {
        let mut file = OpenOptions::new().append(true).open(&self.file)?;
        file.write_all(line.as_bytes())
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        let _ = self.append(&format!("-:{}/{}\n", self.group, self.name));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Calls `set` with an empty `kprobe_events` file, and then drops the probe. Returns the lines
    /// that were written to the file, without the name of the probe's group.
    fn told(set: impl Fn(&Tracefs) -> Result<Probe, NoProbe>) -> Vec<String> {
        let root = tempfile::tempdir().expect("a folder");
        let file = root.path().join("kprobe_events");
        fs::write(&file, "").expect("it can be written");
        drop(set(&Tracefs::at(root.path())).expect("a file takes every line"));
        let text = fs::read_to_string(&file).expect("it can be read");
        let group = format!("plimsoll_{}/", process::id());
        let lines = text.lines().map(|line| line.replacen(&group, "", 1));
        lines.collect()
    }

    #[test]
    fn probes_are_at_ends_of_functions_but_for_the_release_of_a_lock() {
        assert_eq!(
            told(Probe::bulk),
            [
                "r:bulkret alloc_pages_bulk_noprof ret=$retval:u64",
                "-:bulkret"
            ]
        );
        assert_eq!(
            told(Probe::kswapd_done),
            ["r:kswapddone balance_pgdat", "-:kswapddone"]
        );
        if cfg!(target_arch = "x86_64") {
            let place = "p:holdend _raw_spin_unlock_irqrestore caller=$stack0:x64";
            assert_eq!(told(Probe::hold_end), [place, "-:holdend"]);
        }
        let second = KSWAPD_DONE.places.get(1);
        assert_eq!(second, Some(&("p", "psi_memstall_leave")));
    }

    #[test]
    fn without_a_probe_it_is_told_why() {
        let root = tempfile::tempdir().expect("a folder");
        let none = Probe::kswapd_done(&Tracefs::at(root.path()));
        assert!(matches!(none, Err(NoProbe::Unsupported)), "{none:?}");
        fs::create_dir(root.path().join("kprobe_events")).expect("a folder takes no line");
        let none = Probe::kswapd_done(&Tracefs::at(root.path()));
        assert!(matches!(none, Err(NoProbe::Refused(_))), "{none:?}");
    }
}
