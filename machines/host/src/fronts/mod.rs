//! Fronts: for each CPU, a stack of free pages that the CPU uses without a lock.
//!
//! How a thread may use a stack (`stack.rs`) depends on the system. A machine finds the best way
//! when it is made ([`Fronts::best`]):
//!
//! * with restartable sequences (`rseq/`), which serve every thread, whether it plays a CPU or not;
//! * otherwise with owners: a stack belongs to the thread that plays its CPU (`stack.rs`);
//! * otherwise there are no fronts.
//!
//! Runs of pages go from one CPU's front to another CPU's front through a depot (`depot.rs`).
//! Counters use restartable sequences too (`homes.rs`). For measurements, `bare.rs` has a front with
//! as little as possible around it.

mod bare;
mod depot;
mod front;
mod homes;
mod kinds;
mod registrar;
#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
mod rseq;
#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
#[path = "no_rseq.rs"]
mod rseq;
mod stack;
mod sync;
#[cfg(test)]
mod tests;

pub use self::bare::BareFront;
pub use self::front::HostFront;
pub(crate) use self::homes::Homes;
pub use self::kinds::Fronts;
pub(crate) use self::kinds::{PATIENCE, real_cpu};
pub use self::registrar::Registrar;
pub(crate) use self::rseq::leave;
