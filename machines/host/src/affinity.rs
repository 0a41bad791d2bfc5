//! The real CPUs on which a thread may run, and the real CPU on which it is running. This works on
//! Linux only. On other systems no thread can be pinned, and every thread appears to run on CPU 0.

use std::io;

pub use imp::{current, pin};

/// The real CPUs on which a thread may run, in ascending order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuMask(Vec<u32>);

impl CpuMask {
    /// Returns the real CPUs on which the calling thread may currently run. The mask is empty if
    /// the system does not report these CPUs.
    #[must_use]
    pub fn of_this_thread() -> Self {
        Self(imp::allowed().unwrap_or_default())
    }

    /// A mask that contains only `cpu`.
    #[must_use]
    pub fn only(cpu: u32) -> Self {
        Self(vec![cpu])
    }

    /// The CPUs of the mask, in ascending order.
    #[must_use]
    pub fn cpus(&self) -> &[u32] {
        &self.0
    }

    /// The real CPU to which a thread is pinned if it acts as CPU `cpu` of a [`Host`](crate::Host):
    /// `cpu` itself if the mask contains it, otherwise the entry of the mask at `cpu` modulo the
    /// mask's length. So several CPUs of the host may share one real CPU. `None` if the mask is
    /// empty.
    #[must_use]
    pub fn real(&self, cpu: u32) -> Option<u32> {
        let turn = cpu as usize % self.0.len().max(1);
        if self.0.contains(&cpu) {
            Some(cpu)
        } else {
            self.0.get(turn).copied()
        }
    }
}

#[cfg(target_os = "linux")]
mod imp {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

    use super::{CpuMask, io};

    /// The real CPU on which the calling thread runs. The thread may migrate before the call
    /// returns.
    ///
    /// # Panics
    /// If the kernel has 2³² CPUs or more.
    #[must_use]
    pub fn current() -> u32 {
        u32::try_from(sched_getcpu()).expect("the kernel numbers fewer than 2³² CPUs")
    }

    /// Restricts the calling thread to the CPUs of `mask`.
    ///
    /// # Errors
    /// The kernel's error, for instance if no CPU of the mask is online.
    pub fn pin(mask: &CpuMask) -> io::Result<()> {
        let mut set = CpuSet::new();
        for &cpu in mask
            .cpus()
            .iter()
            .filter(|&&cpu| (cpu as usize) < CpuSet::MAX_CPU)
        {
            set.set(cpu as usize);
        }
        Ok(sched_setaffinity(None, &set)?)
    }

    pub(super) fn allowed() -> io::Result<Vec<u32>> {
        let set = sched_getaffinity(None)?;
        let ids = (0..CpuSet::MAX_CPU).filter(|&id| set.is_set(id));
        let number = |id| u32::try_from(id).expect("below `CpuSet::MAX_CPU`");
        Ok(ids.map(number).collect())
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    use super::{CpuMask, io};

    /// Returns CPU 0, because this system does not report the real CPU.
    #[must_use]
    pub fn current() -> u32 {
        0
    }

    /// Fails, because a thread cannot be pinned on this system.
    ///
    /// # Errors
    /// Always.
    pub fn pin(_mask: &CpuMask) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn allowed() -> io::Result<Vec<u32>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_played_cpu_maps_to_itself_or_to_the_mask_in_turn() {
        let mask = CpuMask(vec![2, 5]);
        assert_eq!(
            [0, 1, 2, 3, 5].map(|cpu| mask.real(cpu)),
            [2, 5, 2, 5, 5].map(Some)
        );
        assert_eq!(CpuMask(Vec::new()).real(3), None);
    }
}
