//! The benchmarks of Plimsoll itself, by name: `plimsoll bench`.

pub mod counter;
mod oom;
pub mod page;
mod reap;
mod soak;
mod space;
mod vma;

use std::time::Duration;

use plimsoll_mm::design::Design;
use plimsoll_mm::units::Nanos;
use plimsoll_sim::SimOptions;
use plimsoll_sim::bench as engine;
use plimsoll_sim::profile::Card;
use serde::Serialize;

use crate::catalog::machines;
use crate::error::Error;
use crate::measure::metric::Unit;
use crate::report::Table;
use crate::report::value::{NOTHING, human};
use crate::run::progress::Progress;
use crate::run::testbed::{Testbed, simulated};
use crate::workload::stress_vm::{Pause, StressVm};

/// One benchmark of Plimsoll itself.
#[derive(Clone, Copy, Debug)]
pub struct Bench {
    /// The name that `plimsoll bench` accepts.
    pub name: &'static str,
    /// A description in one line.
    pub about: &'static str,
    /// The function that runs the benchmark.
    run: Run,
}

/// The function that runs a benchmark. The variants of this type differ in what the function takes
/// and returns.
#[derive(Clone, Copy, Debug)]
enum Run {
    /// The function takes no [`Size`]. It returns only tables.
    Fixed(fn(&Progress) -> Result<Vec<Table>, Error>),
    /// The function takes no [`Size`]. It returns tables, and numbers for programs to read.
    Counted(fn(&Progress) -> Result<Found, Error>),
    /// The function takes a [`Size`], which the user can choose. It returns tables, and numbers for
    /// programs to read.
    Sized(fn(&Progress, &Size) -> Result<Found, Error>),
    /// The function takes the time that it should measure. It returns tables, and numbers for
    /// programs to read.
    Timed(fn(&Progress, Duration) -> Result<Found, Error>),
}

/// The size of a benchmark, which the user can choose: the size of the address space, the number of
/// threads that help to empty it, and the number of rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// The resident memory of the address space, in MiB, at most 262,144.
    pub mib: u32,
    /// The number of threads that help the exiting thread to empty the address space, at most 1023.
    pub helpers: u32,
    /// The number of rounds. Each way to empty the address space is measured once in every round.
    pub rounds: u32,
}

impl Size {
    /// The largest value of `mib` that the command line accepts.
    pub const MIB_MAX: u32 = 1 << 18;
    /// The largest value of `helpers` that the command line accepts.
    pub const HELPERS_MAX: u32 = 1023;
}

impl Default for Size {
    fn default() -> Self {
        Self {
            mib: 512,
            helpers: 1,
            rounds: 9,
        }
    }
}

/// The results of a benchmark.
#[derive(Clone, Debug)]
pub struct Found {
    /// Tables for people.
    pub tables: Vec<Table>,
    /// The results as numbers, for programs to read. Empty if the benchmark makes only tables.
    pub rows: Vec<Row>,
}

/// One measured value of a benchmark, for programs to read.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The machine on which the number was measured: `host` for this computer, or the name of a
    /// simulated machine.
    pub machine: String,
    /// The load during the measurement, such as the shape of the address space.
    pub load: String,
    /// The variant that was measured, such as a way to empty an address space.
    pub case: String,
    /// The name of the metric, such as `wall_ns`. Its last part is the unit.
    pub metric: &'static str,
    /// The median of the metric over all rounds.
    pub median: f64,
    /// The lower end of the median's 95 % interval.
    pub low: f64,
    /// The upper end of the median's 95 % interval.
    pub high: f64,
    /// The median, over the rounds, of this case's value divided by the value of the case (such as
    /// a variant) with which all cases are compared. `None` if the benchmark computes no such ratio
    /// for this metric, or if the median is not finite.
    pub ratio: Option<f64>,
    /// The lower end of the ratio's 95 % interval.
    pub ratio_low: Option<f64>,
    /// The upper end of the ratio's 95 % interval.
    pub ratio_high: Option<f64>,
    /// The number of rounds in which the metric was measured.
    pub rounds: usize,
    /// The number of rounds that count as disturbed, because a thread waited too long for a CPU.
    pub disturbed: usize,
}

impl Bench {
    /// Runs the benchmark. If the benchmark takes a size and `size` is `None`, it has the default
    /// size. If the benchmark takes a time and `seconds` is `None`, it runs for a minute.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a size or a time is given to a benchmark that takes none. Also any
    /// error that prevents the measurement.
    pub fn measure(
        &self,
        progress: &Progress,
        size: Option<Size>,
        seconds: Option<u32>,
    ) -> Result<Found, Error> {
        let name = self.name;
        match (self.run, size) {
            (Run::Timed(run), None) => {
                let seconds = seconds.unwrap_or(60);
                return run(progress, Duration::from_secs(seconds.into()));
            }
            (Run::Timed(_), Some(_)) => {}
            _ if seconds.is_some() => {
                let why = format!("bench {name} takes as long as it takes: leave out --seconds");
                return Err(Error::Invalid(why));
            }
            _ => {}
        }
        match (self.run, size) {
            (Run::Sized(run), size) => run(progress, &size.unwrap_or_default()),
            (Run::Fixed(run), None) => Ok(Found {
                tables: run(progress)?,
                rows: Vec::new(),
            }),
            (Run::Counted(run), None) => run(progress),
            (Run::Fixed(_) | Run::Counted(_) | Run::Timed(_), _) => Err(Error::Invalid(format!(
                "bench {name} is always measured alike: leave out --mib, --helpers and --rounds"
            ))),
        }
    }
}

/// Every benchmark, in the order in which they are listed.
pub const ALL: &[Bench] = &[
    Bench {
        name: "sim",
        about: "steps per second of the simulator, CPU time of one core",
        run: Run::Fixed(sim),
    },
    Bench {
        name: "counter",
        about: "the cost of adding to a counter and of reading it, on this computer, variant by variant",
        run: Run::Fixed(|progress| counter::tables(progress, Vec::new)),
    },
    Bench {
        name: "page",
        about: "the cost of allocating and freeing frames on this computer, beside a floor",
        run: Run::Counted(|progress| page::run(progress, Vec::new)),
    },
    Bench {
        name: "vma",
        about: "the cost of finding, walking and changing mappings, ours and other trees",
        run: Run::Fixed(vma::tables),
    },
    Bench {
        name: "space",
        about: "the cost of touching, unmapping and ending an address space on this computer",
        run: Run::Fixed(space::tables),
    },
    Bench {
        name: "reap",
        about: "how much faster a dying address space is gone with a reaper, here and simulated",
        run: Run::Sized(reap::run),
    },
    Bench {
        name: "oom",
        about: "the time to choose a victim among 10,000 processes, selector by selector",
        run: Run::Counted(oom::run),
    },
    Bench {
        name: "soak",
        about: "the longest time that an allocation takes on this computer, beside an idle loop",
        run: Run::Timed(soak::run),
    },
    Bench {
        name: "two-cpus",
        about: "how well the simulator predicts waits for a lock on two CPUs of this computer",
        run: Run::Fixed(crate::validate::two_cpus),
    },
];

/// The sizes, in CPUs, of the simulated machines on which `bench sim` times the simulator itself.
const CPUS: [u32; 4] = [72, 176, 384, 1024];

fn sim(progress: &Progress) -> Result<Vec<Table>, Error> {
    progress.start("bench sim");
    progress.expect((engine::ALL.len() + 1) * CPUS.len() + LOADED.len());
    let steps = steps(progress);
    let mut resident = Vec::new();
    for cpus in CPUS {
        let bytes = engine::resident_bytes(cpus);
        progress.step();
        let bytes = bytes.map_or_else(
            || NOTHING.to_owned(),
            |bytes| human(bytes as f64, Unit::Bytes),
        );
        resident.push(vec![cpus.to_string(), bytes]);
    }
    let loaded = LOADED.iter().map(|load| {
        let row = load.run();
        progress.step();
        row
    });
    let loaded = loaded.collect::<Result<Vec<_>, _>>()?;
    Ok(vec![
        steps,
        table(
            "Resident memory per virtual CPU, each running a task",
            &["CPUs", "per CPU"],
            resident,
        ),
        table(
            "Fault-saturated, with the page allocator inside, CPU time of one core",
            &[
                "machine",
                "interrupts and load",
                "virtual",
                "host",
                "pages",
                "ns per page",
                "M pages/s",
            ],
            loaded,
        ),
    ])
}

/// Times every kind of step of the simulator, on simulated machines of each size in [`CPUS`].
fn steps(progress: &Progress) -> Table {
    let mut steps = Vec::new();
    let mut plain: Vec<f64> = Vec::new();
    for (name, bench) in engine::ALL {
        let costs = CPUS.map(|cpus| {
            let cost = long_enough(|steps| bench(cpus, steps));
            progress.step();
            cost
        });
        let loaded = name.ends_with(", loaded");
        for (nth, cost) in costs.iter().enumerate() {
            let ns = cost.ns_per_step();
            steps.push(vec![
                name.to_owned(),
                cost.cpus.to_string(),
                format!("{ns:.1}"),
                format!("{:.1}", cost.per_second() / 1e6),
                format!("{:.0} %", 100.0 * cost.contended),
                if loaded {
                    format!("{:.2}", ns / plain[nth])
                } else {
                    String::new()
                },
            ]);
        }
        plain = costs.map(|cost| cost.ns_per_step()).to_vec();
    }
    Table {
        note: format!(
            "`loaded`: with the interrupts and the effects of load of {}. The last column is the time \
             of such a step, divided by that of the same step without them.",
            engine::LOADED_LIKE
        ),
        ..table(
            "Steps of the engine",
            &["step", "CPUs", "ns", "M steps/s", "contended", "to plain"],
            steps,
        )
    }
}

/// Repeats the measurement with more and more steps, until it lasts long enough for the host's
/// clock to time it. This is necessary because some clocks count CPU time in ticks of several
/// milliseconds.
fn long_enough(measure: impl Fn(u64) -> engine::Cost) -> engine::Cost {
    const HOST_NS_MIN: u64 = 200_000_000;
    let mut steps = 4_000_000;
    loop {
        let cost = measure(steps);
        if cost.host_ns >= HOST_NS_MIN || steps >= 1 << 32 {
            return cost;
        }
        steps *= 4;
    }
}

/// A run of a simulated machine on which every CPU faults and frees pages as fast as it can.
struct Loaded {
    machine: &'static str,
    length: Nanos,
    /// True if the machine behaves as in an experiment: interrupts and other disturbances happen,
    /// and busy CPUs slow each other down.
    loaded: bool,
}

impl Loaded {
    const fn of(machine: &'static str, seconds: u64, loaded: bool) -> Self {
        Self {
            machine,
            length: Nanos(seconds * Nanos::SECOND.0),
            loaded,
        }
    }
}

const LOADED: [Loaded; 4] = [
    Loaded::of("grace-72", 2, false),
    Loaded::of("grace-72", 10, true),
    Loaded::of("epyc-9654-2s", 2, false),
    Loaded::of("epyc-9654-2s", 10, true),
];

impl Loaded {
    fn run(&self) -> Result<Vec<String>, Error> {
        let profile = machines::load(self.machine, Card::Mid)?;
        let options = SimOptions {
            jitter: self.loaded,
            under_load: self.loaded,
            ..simulated(1)
        };
        let testbed = Testbed::with_options(&profile, Design::default(), options);
        let worker = StressVm {
            bytes: 4 << 20,
            use_ns_per_page: 0,
            pause: Pause::No,
        };
        let done = worker.start(&testbed, profile.topology.ids(), self.length);
        let before = engine::thread_ns();
        testbed.sim.run_until(self.length);
        let host_ns = (engine::thread_ns() - before) as f64;
        // Each page counts twice, because it is allocated once and freed once.
        let pages = 2.0 * done.pages() as f64;
        Ok(vec![
            self.machine.to_owned(),
            if self.loaded { "on" } else { "off" }.to_owned(),
            human(self.length.0 as f64, Unit::Nanos),
            human(host_ns, Unit::Nanos),
            human(pages, Unit::Count),
            format!("{:.1}", host_ns / pages),
            format!("{:.1}", pages / host_ns * 1e3),
        ])
    }
}

fn table(title: &str, columns: &[&str], rows: Vec<Vec<String>>) -> Table {
    Table {
        title: title.to_owned(),
        note: String::new(),
        columns: columns.iter().map(|&column| column.to_owned()).collect(),
        rows,
    }
}

/// Returns the benchmark called `name`.
///
/// # Errors
/// [`Error::Unknown`], with the nearest names, if no benchmark has this name.
pub fn find(name: &str) -> Result<&'static Bench, Error> {
    let names: Vec<&str> = ALL.iter().map(|bench| bench.name).collect();
    let found = ALL.iter().find(|bench| bench.name == name);
    found.ok_or_else(|| Error::unknown("bench", name, &names))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_where_none_can_be_chosen_is_bad_input() {
        let sized = find("vma").and_then(|vma| {
            let size = Some(Size::default());
            vma.measure(&Progress::hidden(), size, None)
        });
        let error = sized.expect_err("vma has its own sizes");
        assert!(error.is_bad_input());
        assert!(error.to_string().contains("leave out --mib"), "{error}");
    }

    #[test]
    fn a_time_where_none_can_be_chosen_is_bad_input() {
        let measure = |name, size, seconds| {
            let bench = find(name).expect("there is such a bench");
            let found = bench.measure(&Progress::hidden(), size, seconds);
            found.expect_err("it takes no such thing").to_string()
        };
        assert!(measure("vma", None, Some(1)).contains("leave out --seconds"));
        let size = Some(Size::default());
        assert!(measure("soak", size, Some(1)).contains("leave out --mib"));
        assert!(measure("soak", size, None).contains("leave out --mib"));
    }
}
