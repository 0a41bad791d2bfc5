//! The reasons why a counter cannot be made of the given parts. Nothing has been written when one
//! of these errors is returned.

use core::fmt;

/// The reason why a shape cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShapeError {
    /// The batch is not a power of two of at least 2.
    Batch(u32),
    /// The number of CPUs is 0.
    NoCpus,
    /// There are more CPUs than the tree's table has entries for.
    TooManyCpus {
        /// The number of CPUs asked for.
        cpus: u32,
        /// The largest number of CPUs that is possible.
        max: u32,
    },
    /// The fan-in is below 2, so no two CPUs would share an item.
    FanIn(u32),
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Batch(batch) => write!(
                f,
                "a batch of {batch} will not do; choose a power of two from 2 on, such as 32"
            ),
            Self::NoCpus => f.write_str("a counter needs at least one CPU"),
            Self::TooManyCpus { cpus, max } => {
                write!(
                    f,
                    "{cpus} CPUs are too many for this counter; it has at most {max}"
                )
            }
            Self::FanIn(fan_in) => {
                write!(
                    f,
                    "groups of {fan_in} will not do; choose 2 or more, such as 16"
                )
            }
        }
    }
}

impl core::error::Error for ShapeError {}

/// The reason why counters cannot be made of the given parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitError {
    /// The group would have no counter, or more than fit.
    Width {
        /// The number of counters asked for.
        counters: usize,
        /// The largest number of counters that is possible.
        max: usize,
    },
    /// The per-CPU memory is for another number of counters.
    AreaWidth {
        /// The number of counters asked for.
        counters: usize,
        /// The number of counters that the area has room for in each place.
        area: usize,
    },
    /// The shape is for another number of CPUs than the machine or the area has.
    Cpus {
        /// The number of CPUs of the shape.
        shape: u32,
        /// The number of CPUs of the machine or the area.
        machine: u32,
    },
    /// The memory for items is too small.
    Items {
        /// The number of lines needed.
        needed: usize,
        /// The number of lines given.
        given: usize,
    },
    /// There is no memory for the counters.
    OutOfMemory,
}

impl fmt::Display for InitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Width { counters, max } => {
                write!(f, "a group has 1 to {max} counters, not {counters}")
            }
            Self::AreaWidth { counters, area } => write!(
                f,
                "the area has room for {area} counters a group, not for {counters}; make one for this width"
            ),
            Self::Cpus { shape, machine } => write!(
                f,
                "the shape is for {shape} CPUs and the machine has {machine}; make it for this machine"
            ),
            Self::Items { needed, given } => write!(
                f,
                "the items need {needed} lines and {given} were given; see `items_size`"
            ),
            Self::OutOfMemory => f.write_str("no memory for the counters"),
        }
    }
}

impl core::error::Error for InitError {}
