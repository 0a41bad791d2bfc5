//! Reschedule points. A *stretch* is the time that a CPU works from one reschedule point to the
//! next.
//!
//! In a Linux kernel without full preemption, a task in the kernel gives up its CPU only at a
//! reschedule point: when it sleeps or returns to its program, or where the code asks for it
//! (`cond_resched`). Kernel work that runs between two tasks, or that interrupts a task, is no such
//! point. The engine knows where tasks sleep and end; a workload reports its other reschedule
//! points with [`Sim::resched_point`].

use plimsoll_mm::units::Nanos;

use crate::engine::cpu::cpu_id;
use crate::engine::state::{Inner, Sim};
use crate::tasks::stretch::Stretch;

impl Sim {
    /// Calls `observer` for each *stretch*, a time that a CPU works without a reschedule point,
    /// when the stretch has ended. Leaves out stretches that are shorter than `at_least`. Replaces
    /// the previous observer. Call this before the run.
    pub fn observe_stretches(&self, at_least: Nanos, observer: impl FnMut(&Stretch) + 'static) {
        let of = &self.0.stretches;
        of.at_least.set(at_least.0);
        of.from.replace(vec![0; self.0.cpus.len()].into());
        of.observer.replace(Some(Box::new(observer)));
        of.on.set(true);
    }

    /// Reports that the calling task passes a reschedule point (Linux: `cond_resched`, or the
    /// return to the program). Takes no time.
    #[inline]
    pub fn resched_point(&self) {
        if !self.0.outside.get() {
            self.0.rescheduled();
        }
    }

    /// Ends the *stretch* of every busy CPU, and passes these stretches to the observer. A stretch
    /// is the time since the CPU's last reschedule point. Call this after a run.
    pub fn end_stretches(&self) {
        let now = self.0.now();
        for (index, cpu) in self.0.cpus.iter().enumerate() {
            if self.0.stretches.on.get() && !cpu.is_idle() {
                self.0.end_stretch(index, now);
            }
        }
    }
}

impl Inner {
    /// Ends the stretch (the time without a reschedule point) of the running CPU, which passes such
    /// a point now. Begins another stretch.
    #[inline]
    pub(crate) fn rescheduled(&self) {
        if self.stretches.on.get() {
            self.end_stretch(self.cur.get(), self.clock.get());
        }
    }

    /// Begins a stretch (a time without a reschedule point) on the running CPU, which was idle.
    pub(crate) fn begin_stretch(&self) {
        if self.stretches.on.get() {
            self.stretches.from.borrow_mut()[self.cur.get()] = self.clock.get();
        }
    }

    fn end_stretch(&self, cpu: usize, now: u64) {
        let from = std::mem::replace(&mut self.stretches.from.borrow_mut()[cpu], now);
        // The run ended at `now`. A CPU whose clock is ahead of other CPUs may have begun its
        // stretch (its time without a reschedule point) later. The length of such a stretch is 0.
        if now.saturating_sub(from) >= self.stretches.at_least.get()
            && let Some(observer) = &mut *self.stretches.observer.borrow_mut()
        {
            observer(&Stretch {
                cpu: cpu_id(cpu),
                from: Nanos(from),
                until: Nanos(now),
            });
        }
    }
}
