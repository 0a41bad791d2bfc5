//! Switches on the events to record, and reports the events that the kernel refuses.

use std::io;

use plimsoll_recording::Kallsyms;

use crate::tracefs::Instance;

/// A tracepoint that a recording needs.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    /// The tracepoint's folder below `events`.
    event: &'static str,
    limit: Limit,
}

/// The part of a tracepoint's events that is recorded.
#[derive(Clone, Copy, Debug)]
enum Limit {
    All,
    /// Only the events of these functions.
    Functions(&'static [&'static str]),
    /// Only the events of locks whose waiters spin, each with a call chain.
    SpinLocks,
}

const fn all(event: &'static str) -> Wanted {
    let limit = Limit::All;
    Wanted { event, limit }
}

const fn of(event: &'static str, functions: &'static [&'static str]) -> Wanted {
    let limit = Limit::Functions(functions);
    Wanted { event, limit }
}

/// The work functions that maintain per-CPU lists and counters.
const UPKEEP: &[&str] = &["vmstat_update", "vmstat_shepherd"];
/// Timer functions that queue delayed work, including the vmstat work. A kernel patched with
/// `kernel/phased.cocci` has separate functions for the vmstat work.
const DELAYED: &[&str] = &["delayed_work_timer_fn", PATCHED[0], PATCHED[1]];
const PATCHED: [&str; 2] = ["vmstat_timer_fn", "vmstat_kick_fn"];

const WANTED: [Wanted; 25] = [
    all("kmem/mm_page_alloc"),
    all("kmem/mm_page_free"),
    all("kmem/mm_page_free_batched"),
    all("kmem/mm_page_pcpu_drain"),
    all("kmem/mm_page_alloc_zone_locked"),
    all("kmem/mm_page_alloc_extfrag"),
    of("workqueue/workqueue_queue_work", UPKEEP),
    of("workqueue/workqueue_execute_start", UPKEEP),
    of("workqueue/workqueue_execute_end", UPKEEP),
    of("timer/timer_start", DELAYED),
    of("timer/timer_expire_entry", DELAYED),
    Wanted {
        event: "lock/contention_begin",
        limit: Limit::SpinLocks,
    },
    all("lock/contention_end"),
    all("oom/mark_victim"),
    all("oom/wake_reaper"),
    all("oom/start_task_reaping"),
    all("oom/finish_task_reaping"),
    all("oom/skip_task_reaping"),
    all("mmap/exit_mmap"),
    all("vmscan/mm_vmscan_kswapd_wake"),
    all("vmscan/mm_vmscan_kswapd_sleep"),
    all("vmscan/mm_vmscan_wakeup_kswapd"),
    all("vmscan/mm_vmscan_direct_reclaim_begin"),
    all("vmscan/mm_vmscan_direct_reclaim_end"),
    all("ftrace/print"),
];

/// The filter for locks whose waiters always spin: spinlocks, and rwlocks for reading and for
/// writing. It excludes mutexes, whose waiters spin only for a while.
const SPINNING: &str = "flags == 1 || flags == 3 || flags == 5";

/// The events that were switched on, and the events that could not be switched on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) recorded: Vec<String>,
    pub(super) missing: Vec<String>,
}

/// Switches on the events of [`WANTED`] in `instance`, including `rss_stat` if `rss` is
/// [`Rss::Wanted`].
pub(super) fn enable(instance: &Instance, rss: Rss, kallsyms: &Kallsyms) -> Chosen {
    let mut chosen = Chosen::default();
    let more = (rss == Rss::Wanted).then_some(all("kmem/rss_stat"));
    for wanted in WANTED.into_iter().chain(more) {
        // The kernel always records notes (the events `ftrace/print`), so the recorder need not
        // switch them on.
        if wanted.event != "ftrace/print" {
            chosen.enable(instance, kallsyms, wanted);
        }
    }
    if rss == Rss::Spared {
        chosen.missing.push(
            "Resident pages (kmem:rss_stat) were not asked for; --rss records them.".to_owned(),
        );
    }
    chosen
}

/// Whether changes of resident pages are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rss {
    /// Records every change of a process's rss counters, which adds one event to most page faults.
    Wanted,
    /// Records no changes of resident pages.
    Spared,
}

/// Returns the events whose formats are needed to decode a recording.
pub(super) fn formats() -> impl Iterator<Item = &'static str> {
    let more = ["ftrace/kernel_stack", "kmem/rss_stat"];
    WANTED.iter().map(|wanted| wanted.event).chain(more)
}

impl Chosen {
    fn enable(&mut self, instance: &Instance, kallsyms: &Kallsyms, wanted: Wanted) {
        let folder = format!("events/{}", wanted.event);
        let name = wanted.event.replacen('/', ":", 1);
        if !instance.path(&folder).is_dir() {
            let missing = format!("{name}: this kernel has no such tracepoint.");
            self.missing.push(missing);
            return;
        }
        let limit = match wanted.limit {
            Limit::All => String::new(),
            Limit::Functions(functions) => {
                // The kernel refuses the whole filter if it names a function that does not exist.
                let is_there =
                    |name: &&&str| !PATCHED.contains(name) || kallsyms.address(name).is_some();
                let functions: Vec<&str> = functions.iter().filter(is_there).copied().collect();
                match of_functions(instance, &folder, kallsyms, &functions) {
                    Ok(()) => format!(" of {}", functions.join(" and ")),
                    Err(error) => {
                        self.refused(&name, &error, "events of all functions are recorded")
                    }
                }
            }
            Limit::SpinLocks => self.spin_locks(instance, &folder, &name),
        };
        match instance.write(&format!("{folder}/enable"), "1") {
            Ok(()) => self.recorded.push(format!("{name}{limit}")),
            Err(error) => {
                let missing = format!("{name}: the kernel did not enable it ({error}).");
                self.missing.push(missing);
            }
        }
    }

    /// Limits an event to spinning locks and adds call chains; returns the words with which the
    /// header describes the event.
    fn spin_locks(&mut self, instance: &Instance, folder: &str, name: &str) -> String {
        if let Err(error) = instance.write(&format!("{folder}/filter"), SPINNING) {
            return self.refused(name, &error, "waits for sleeping locks are recorded too");
        }
        let trigger = format!("stacktrace if {SPINNING}");
        match instance.write(&format!("{folder}/trigger"), &trigger) {
            Ok(()) => " of spinning locks, with call chains".to_owned(),
            Err(error) => {
                self.refused(name, &error, "call chains are missing");
                " of spinning locks".to_owned()
            }
        }
    }

    fn refused(&mut self, name: &str, error: &io::Error, so: &str) -> String {
        let missing = format!("{name}: the kernel refused a filter or trigger ({error}), so {so}.");
        self.missing.push(missing);
        String::new()
    }
}

/// Sets the event's filter so that only events of `functions` are recorded. The filter has the
/// names of the functions or, on kernels before 6.3, their addresses.
fn of_functions(
    instance: &Instance,
    folder: &str,
    kallsyms: &Kallsyms,
    functions: &[&str],
) -> io::Result<()> {
    let filter = |terms: Vec<String>| {
        let text = terms.join(" || ");
        instance.write(&format!("{folder}/filter"), &text)
    };
    let by_name = |name: &&str| format!("function.function == {name}");
    let named = filter(functions.iter().map(by_name).collect());
    let addresses = functions.iter().map(|name| kallsyms.address(name));
    match (named, addresses.collect::<Option<Vec<u64>>>()) {
        (Err(_), Some(addresses)) => {
            let by_address = |address: &u64| format!("function == {address:#x}");
            filter(addresses.iter().map(by_address).collect())
        }
        (named, _) => named,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The events of reclaim that an exact replay reads. An exact replay repeats a recorded
    /// kernel's operations in Plimsoll.
    const OF_RECLAIM: [&str; 5] = [
        "vmscan/mm_vmscan_kswapd_wake",
        "vmscan/mm_vmscan_kswapd_sleep",
        "vmscan/mm_vmscan_wakeup_kswapd",
        "vmscan/mm_vmscan_direct_reclaim_begin",
        "vmscan/mm_vmscan_direct_reclaim_end",
    ];

    #[test]
    fn events_of_reclaim_are_switched_on_and_their_formats_read() {
        let root = tempfile::tempdir().expect("a folder");
        let instance = Instance::at(root.path());
        let switch = |event: &str| root.path().join("events").join(event).join("enable");
        for event in OF_RECLAIM {
            let switch = switch(event);
            fs::create_dir_all(switch.parent().expect("a folder")).expect("it can be made");
            fs::write(switch, "0").expect("it can be written");
        }
        let chosen = enable(&instance, Rss::Wanted, &Kallsyms::parse(""));
        for event in OF_RECLAIM {
            let on = fs::read_to_string(switch(event)).expect("it can be read");
            assert_eq!(on, "1", "{event}");
            assert!(formats().any(|format| format == event), "{event}");
        }
        assert_eq!(chosen.recorded.len(), OF_RECLAIM.len(), "{chosen:?}");
        let lacks = "kmem:mm_page_alloc: this kernel has no such tracepoint.";
        assert!(
            chosen.missing.iter().any(|missing| missing == lacks),
            "{chosen:?}"
        );
    }
}
