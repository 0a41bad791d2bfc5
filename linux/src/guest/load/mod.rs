//! The loads that run in a booted kernel while it is recorded.
//!
//! A load runs inside the guest as a separate process. By default, most loads begin after `settle`
//! has brought the per-CPU lists into a known state. Most loads are programs for workers
//! (`guest/op.rs`), with one worker for each CPU.

mod bursts;
mod dirty;
mod fault;
mod files;
mod fork;
mod hop;
mod mixed;
pub(crate) mod parameter;
mod population;
mod settle;

use std::env;
use std::fs;
use std::io;

use rustix::io::Errno;

pub use parameter::{BadParameter, Kind, Parameter, Values};

use super::op::Op;
use super::progress::say;
use super::worker::pin;
use crate::boot::GuestState;

/// A load that is part of this program.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// The name by which a user selects the load.
    pub name: &'static str,
    /// One sentence that says what the load does.
    pub about: &'static str,
    /// The load's parameters, except `settle`.
    pub parameters: &'static [Parameter],
    /// The kernel modules that the load needs.
    pub modules: &'static [&'static str],
    /// True if `settle` brings the per-CPU lists into a known state before the load begins, unless
    /// the user says otherwise.
    pub settles: bool,
    run: fn(&Guest, &Values) -> io::Result<()>,
}

/// Every load, in the order in which `plimsoll linux loads` lists them.
pub const LOADS: &[Load] = &[
    fault::LOAD,
    bursts::LOAD,
    fork::LOAD,
    files::LOAD,
    mixed::LOAD,
    dirty::LOAD,
    hop::LOAD,
    population::LOAD,
];

/// The parameter that says whether the per-CPU lists are brought into a known state before the load
/// begins.
const SETTLE: Parameter = Parameter::word(
    "settle",
    "whether the per-CPU lists are brought into a known state first",
    &["yes", "no"],
);
const SETTLE_NOT: Parameter = Parameter::word(SETTLE.name, SETTLE.about, &["no", "yes"]);

impl Load {
    /// Returns the load with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        LOADS.iter().find(|load| load.name == name)
    }

    /// Returns the load's parameters, including `settle`.
    #[must_use]
    pub fn all_parameters(&self) -> Vec<Parameter> {
        let settle = if self.settles { SETTLE } else { SETTLE_NOT };
        let mut all = vec![settle];
        all.extend_from_slice(self.parameters);
        all
    }

    /// Parses the values of the load's parameters.
    ///
    /// # Errors
    ///
    /// If a parameter is unknown or a value is not allowed.
    pub fn values(&self, texts: &[String]) -> Result<Values, BadParameter> {
        Values::parse(&self.all_parameters(), texts)
    }

    /// Runs the load on this computer, which must be a guest.
    ///
    /// # Errors
    ///
    /// If the kernel refuses an operation.
    pub fn run(&self, values: &Values) -> io::Result<()> {
        let guest = Guest::here()?;
        // The leader of a load runs on CPU 0, away from the CPUs that work. Workers also start on
        // CPU 0, and then move.
        pin(0)?;
        if values.text(SETTLE.name) == "yes" {
            settle::settle(&guest)?;
        }
        mark(&format!("load {} begins", self.name))?;
        (self.run)(&guest, values)?;
        mark(&format!("load {} ends", self.name))?;
        // The load has ended; the recorder now begins to read the ring buffers.
        say(&GuestState::Reading);
        Ok(())
    }
}

/// The guest on which a load runs. Its CPUs have the numbers below `cpus`.
#[derive(Clone, Copy, Debug)]
struct Guest {
    cpus: u32,
}

impl Guest {
    fn here() -> io::Result<Self> {
        let online = fs::read_to_string("/sys/devices/system/cpu/online")?;
        let last = online.trim().rsplit(['-', ',']).next();
        let last: Option<u32> = last.and_then(|cpu| cpu.parse().ok());
        let last = last.ok_or_else(|| io::Error::other("no CPU is online"))?;
        Ok(Self { cpus: last + 1 })
    }

    /// Returns the CPUs that work: all except the first, on which the load's leader and the
    /// recorder run. On a computer with a single CPU, returns this CPU.
    fn workers(self) -> impl Iterator<Item = u32> + Clone {
        u32::from(self.cpus > 1)..self.cpus
    }

    /// Returns the working CPU after `cpu`. After the last working CPU comes the first one.
    fn neighbour(self, cpu: u32) -> u32 {
        let first = u32::from(self.cpus > 1);
        if cpu + 1 < self.cpus { cpu + 1 } else { first }
    }

    /// Returns one list of steps for each working CPU. `program` makes the list, except its first
    /// step, which binds the worker to the CPU.
    fn programs(self, program: impl Fn(u32) -> Vec<Op>) -> Vec<Vec<Op>> {
        let pinned = |cpu| [vec![Op::Cpu(cpu)], program(cpu)].concat();
        self.workers().map(pinned).collect()
    }
}

/// The folder in which a load stores texts for the recording, one file for each text.
pub(crate) const TEXTS: &str = "/run/plimsoll/texts";

/// Stores a text for the recording, under `name`.
fn leave(name: &str, text: &str) -> io::Result<()> {
    fs::create_dir_all(TEXTS)?;
    fs::write(format!("{TEXTS}/{name}"), text)
}

/// Writes a note among the events, into the ring buffers of the recorder that runs this load.
fn mark(text: &str) -> io::Result<()> {
    let marker = env::var_os("PLIMSOLL_MARKER");
    let marker = marker.ok_or_else(|| io::Error::other("no recorder runs this load"))?;
    match fs::write(marker, format!("plimsoll: {text}\n")) {
        // The kernel returns this error if the ring buffer of the current CPU is full. The note is
        // then lost, like the events that find the buffer full. The recorder counts and reports
        // lost events.
        Err(error) if error.raw_os_error() == Some(Errno::BADF.raw_os_error()) => Ok(()),
        written => written,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_have_names_of_their_own_and_consistent_parameters() {
        for (at, load) in LOADS.iter().enumerate() {
            assert!(LOADS[..at].iter().all(|other| other.name != load.name));
            let parameters = load.all_parameters();
            for (at, parameter) in parameters.iter().enumerate() {
                assert!(parameters[..at].iter().all(|p| p.name != parameter.name));
            }
            // Parsing the defaults shows that each of them is an allowed value.
            let said = parameters
                .iter()
                .map(|p| format!("{}={}", p.name, p.default()));
            let said: Vec<String> = said.collect();
            assert_eq!(load.values(&said).unwrap(), load.values(&[]).unwrap());
        }
    }

    #[test]
    fn the_first_cpu_leads_and_the_others_work() {
        let cpus = |guest: Guest| guest.workers().collect::<Vec<_>>();
        assert_eq!(cpus(Guest { cpus: 1 }), [0]);
        assert_eq!(cpus(Guest { cpus: 4 }), [1, 2, 3]);
        assert_eq!(Guest { cpus: 4 }.neighbour(3), 1);
        assert_eq!(Guest { cpus: 1 }.neighbour(0), 0);
        let programs = Guest { cpus: 3 }.programs(|cpu| vec![Op::Map(cpu as usize)]);
        assert_eq!(
            programs,
            [[Op::Cpu(1), Op::Map(1)], [Op::Cpu(2), Op::Map(2)]]
        );
    }
}
