//! The reasons why a counter, or the shape of a tree of counters, cannot be created. A function
//! that returns one of these errors has written nothing to the memory that it was given.

use core::fmt;

/// The reason why the shape of a counter tree cannot be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShapeError {
    /// The batch is less than 2, or is not a power of two.
    Batch(u32),
    /// The number of CPUs is 0.
    NoCpus,
    /// The tree proposed for Linux has no shape for this number of CPUs.
    TooManyCpus {
        /// The requested number of CPUs.
        cpus: u32,
        /// The largest possible number of CPUs.
        max: u32,
    },
    /// The fan-in, which is the largest number of CPUs that share an item of the tree, is less than
    /// 2.
    FanIn(u32),
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Batch(batch) => write!(
                f,
                "a batch of {batch} is not allowed; choose a power of two from 2 on, such as 32"
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
                    "groups of {fan_in} are not allowed; choose 2 or more, such as 16"
                )
            }
        }
    }
}

impl core::error::Error for ShapeError {}

/// The reason why a group of counters cannot be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitError {
    /// The group would have no counter, or more counters than possible.
    Width {
        /// The requested number of counters.
        counters: usize,
        /// The largest possible number of counters.
        max: usize,
    },
    /// The per-CPU memory is for a different number of counters.
    AreaWidth {
        /// The requested number of counters.
        counters: usize,
        /// The number of counters per group for which the per-CPU memory was created.
        area: usize,
    },
    /// The shape of the tree was created for a different number of CPUs than the machine or the
    /// per-CPU memory has.
    Cpus {
        /// The number of CPUs for which the shape was created.
        shape: u32,
        /// The number of CPUs that the machine or the per-CPU memory has.
        machine: u32,
    },
    /// The memory that the caller supplied for the items, which are the upper levels of the tree,
    /// is too small.
    Items {
        /// The number of cache lines that the upper levels of the tree need.
        needed: usize,
        /// The number of cache lines that the caller supplied.
        given: usize,
    },
    /// There is not enough memory for the counters.
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
