//! Jobs that are deferred to a CPU, and the timers that start them.
//!
//! Each CPU has one slot for each kind of job. A slot has one of three states: its job is not
//! deferred, waits until a given time, or waits for its turn to run. A job never runs twice at once
//! on one CPU: if it comes due again while it runs, the second run waits. An expired timer queues
//! its job, which runs before ordinary tasks at the next preemption point.

use std::cmp::Reverse;

use plimsoll_mm::machine::{Due, Job, JobState, WhenIdle};
use plimsoll_mm::site::Work;
use plimsoll_mm::units::{CpuId, Jiffies, Nanos};
use plimsoll_mm::wheel::Wheel;

use crate::engine::cpu::{Cpu, Waits};
use crate::engine::record::{JOB, bump};
use crate::engine::state::{Inner, Sim};
use crate::engine::tree::TIME_MAX_NS;

impl Inner {
    pub(crate) fn defer(&self, target: CpuId, job: Job, due: Due, idle: WhenIdle) {
        let target = target.index();
        let remote = target != self.cur.get() || self.outside.get();
        if remote {
            self.order();
        }
        let cpu = &self.cpus[target];
        if !cpu.online.get() {
            return bump(&self.record.jobs_ignored);
        }
        let slot = &cpu.jobs[job as usize];
        if due == Due::Now && !remote {
            slot.waits.set(Waits::Turn(self.next_sequence()));
            return self.deadline.set(0);
        }
        if due == Due::Now {
            self.charge(Work::Ipi, 1);
        }
        let now = self.now();
        let at = match due {
            Due::Now => now,
            Due::Wheel(ahead) => self.wheel_fires_at(target, now, ahead),
            Due::At(at) => at.0.max(now),
        };
        assert!(at < TIME_MAX_NS, "virtual time ends after 26 days");
        slot.idle.set(if due == Due::Now {
            WhenIdle::Wake
        } else {
            idle
        });
        // A job that is due at once still waits until the time at which it was deferred. Otherwise
        // a CPU whose clock is earlier could start the job before that time.
        slot.waits.set(Waits::Until(at));
        if !cpu.is_idle() || slot.idle.get() == WhenIdle::Wake {
            self.alert(target, at);
        }
    }

    fn wheel_fires_at(&self, target: usize, now: u64, ahead: Jiffies) -> u64 {
        let clock = self.hz.jiffies(Nanos(now));
        let expires = Jiffies(clock.0.saturating_add(ahead.0));
        let fires = Wheel::new(self.hz).fires_at(clock, expires);
        let late = self.timer_delay() + u64::from(self.comes_before_its_count(target, fires));
        self.hz.nanos(Jiffies(fires.0 + late)).0.max(now)
    }

    pub(crate) fn cancel(&self, target: CpuId, job: Job) {
        if target.index() != self.cur.get() {
            self.order();
        }
        self.cpus[target.index()].jobs[job as usize]
            .waits
            .set(Waits::No);
    }

    pub(crate) fn job_state(&self, target: CpuId, job: Job) -> JobState {
        if target.index() != self.cur.get() {
            self.order();
        }
        let slot = &self.cpus[target.index()].jobs[job as usize];
        if slot.waits.get() != Waits::No {
            JobState::Pending
        } else if slot.running.get() {
            JobState::Running
        } else {
            JobState::Dormant
        }
    }

    /// Queues the jobs and tasks that are due on the running CPU. All of them together cost one
    /// interrupt.
    pub(crate) fn fire_timers(&self, cpu: &Cpu) {
        let now = self.clock.get();
        let mut fired = false;
        for slot in &cpu.jobs {
            if matches!(slot.waits.get(), Waits::Until(at) if at <= now) {
                slot.waits.set(Waits::Turn(self.next_sequence()));
                fired = true;
            }
        }
        let mut sleepers = cpu.sleepers.borrow_mut();
        while let Some(&Reverse((at, _, task))) = sleepers.peek() {
            if at > now {
                break;
            }
            sleepers.pop();
            cpu.ready.borrow_mut().push_back(task);
            fired = true;
        }
        drop(sleepers);
        if fired {
            self.charge(Work::Interrupt, 1);
        }
    }

    /// Marks `job` as running.
    pub(crate) fn begin_job(&self, cpu: &Cpu, job: Job) {
        let slot = &cpu.jobs[job as usize];
        slot.waits.set(Waits::No);
        slot.running.set(true);
    }
}

impl Sim {
    /// Runs `job` as kernel work of the running CPU.
    pub(crate) fn run_job(&self, job: Job) {
        let cpu = self.0.cur.get();
        bump(&self.0.record.jobs_run[job as usize]);
        self.0.record.fold(self.0.now(), cpu, JOB | job as u64);
        let handler = self.0.hooks.on_job.borrow().clone();
        if let Some(handler) = handler {
            handler(self, job);
        }
        self.0.cpus[cpu].jobs[job as usize].running.set(false);
    }
}
