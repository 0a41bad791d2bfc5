//! The plan: instructions for the first process of a guest, as a text in the guest's initramfs.
//!
//! Each line is one `name value`, so that a person can read the plan when something goes wrong.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

/// The path of the plan in the initramfs.
pub(crate) const PLAN: &str = "/plimsoll/plan";
/// The path in the initramfs of a load that the user supplies.
pub(crate) const USER_LOAD: &str = "/plimsoll/load";

/// The instructions for the first process of a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The load that runs while the guest is recorded.
    pub(crate) work: Work,
    /// The names of the kernel modules in the initramfs, each after the modules that it needs.
    pub(crate) modules: Vec<String>,
    /// True if changes of resident pages are recorded.
    pub(crate) rss: bool,
    /// True if the moments at which CPUs release the zone lock are recorded.
    pub(crate) holds: bool,
    /// The size of each CPU's ring buffer, in MiB.
    pub(crate) buffer_mib: NonZeroU32,
    /// The command that the user typed, for the recording's header.
    pub(crate) command: String,
}

/// The load that runs while the guest is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// A load that is part of this program. The texts are the load's name and its arguments.
    Load(String, Vec<String>),
    /// A program that the user supplies. The texts are the program's arguments.
    Program(Vec<String>),
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.work {
            Work::Load(name, told) => {
                writeln!(f, "load {name}")?;
                told.iter()
                    .try_for_each(|text| writeln!(f, "argument {text}"))?;
            }
            Work::Program(arguments) => {
                writeln!(f, "program {USER_LOAD}")?;
                let mut arguments = arguments.iter();
                arguments.try_for_each(|text| writeln!(f, "argument {text}"))?;
            }
        }
        let mut modules = self.modules.iter();
        modules.try_for_each(|module| writeln!(f, "module {module}"))?;
        writeln!(f, "rss {}", self.rss)?;
        writeln!(f, "holds {}", self.holds)?;
        writeln!(f, "buffer {}", self.buffer_mib)?;
        writeln!(f, "command {}", self.command)
    }
}

/// The error for a text that cannot be parsed as a plan. The error quotes the line that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NoPlan(String);

impl fmt::Display for NoPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the guest's plan makes no sense: {}", self.0)
    }
}

impl std::error::Error for NoPlan {}

impl FromStr for Plan {
    type Err = NoPlan;

    fn from_str(text: &str) -> Result<Self, NoPlan> {
        let mut work = None;
        let mut arguments = Vec::new();
        let mut plan = Self {
            work: Work::Program(Vec::new()),
            modules: Vec::new(),
            rss: false,
            holds: false,
            buffer_mib: NonZeroU32::MIN,
            command: String::new(),
        };
        for line in text.lines() {
            let (name, value) = line.split_once(' ').unwrap_or((line, ""));
            let no_plan = || NoPlan(line.to_owned());
            match name {
                "load" => work = Some(Work::Load(value.to_owned(), Vec::new())),
                "program" => work = Some(Work::Program(Vec::new())),
                "argument" => arguments.push(value.to_owned()),
                "module" => plan.modules.push(value.to_owned()),
                "rss" => plan.rss = value.parse().map_err(|_| no_plan())?,
                "holds" => plan.holds = value.parse().map_err(|_| no_plan())?,
                "buffer" => plan.buffer_mib = value.parse().map_err(|_| no_plan())?,
                "command" => value.clone_into(&mut plan.command),
                _ => return Err(no_plan()),
            }
        }
        plan.work = match work {
            Some(Work::Load(name, _)) => Work::Load(name, arguments),
            Some(Work::Program(_)) => Work::Program(arguments),
            None => return Err(NoPlan("it names no load".to_owned())),
        };
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_reads_back_from_its_text() {
        let load = Plan {
            work: Work::Load("fault".to_owned(), vec!["rounds=3".to_owned()]),
            modules: vec!["zsmalloc.ko".to_owned(), "zram.ko".to_owned()],
            rss: true,
            holds: true,
            buffer_mib: NonZeroU32::new(16).unwrap(),
            command: "plimsoll linux --load fault -- rounds=3".to_owned(),
        };
        let program = Plan {
            work: Work::Program(vec!["-x".to_owned(), "a b".to_owned()]),
            rss: false,
            holds: false,
            ..load.clone()
        };
        for plan in [load, program] {
            assert_eq!(plan.to_string().parse(), Ok(plan));
        }
    }

    #[test]
    fn a_text_that_is_no_plan_is_refused() {
        for text in ["", "buffer 3", "jump 3\nload x", "load x\nbuffer many"] {
            let error = text.parse::<Plan>().unwrap_err();
            assert!(error.to_string().contains("makes no sense"), "{text}");
        }
    }
}
