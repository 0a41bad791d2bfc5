//! The shepherd restarts the vmstat work of a CPU after this work has stopped. It does not touch a
//! CPU whose vmstat work is running.

use std::sync::Mutex;
use std::sync::mpsc;
use std::time::Duration;

use plimsoll_host::Host;
use plimsoll_mm::Manager;
use plimsoll_mm::design::{Design, SHEPHERDS};
use plimsoll_mm::machine::{Due, Job, JobState, Machine, WhenIdle};
use plimsoll_mm::page::{Config, Layout};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Pages, Pfn};
use plimsoll_mm::vmstat::counters::ZoneItem;

const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn work_that_runs_is_not_dormant() {
    for shepherd in SHEPHERDS {
        let host = Host::with_topology(Topology::flat(2));
        let mut config = Config::new(Layout::arena(Pages(1 << 16)));
        config.design = Design {
            shepherd,
            ..Design::OURS
        };
        let mm = Manager::new(&host, config).expect("an arena is a layout");
        {
            let _entered = host.enter(CpuId(1));
            mm.pages().count(&host, Pfn(0), ZoneItem::Anon, 1);
        }
        assert!(mm.is_dirty(&host, CpuId(1)), "a reason to wake it");
        let (runs, running) = mpsc::channel();
        let (leave, left) = mpsc::channel::<()>();
        let left = Mutex::new(left);
        let handler = move |_: &Host, job| {
            if job == Job::VmstatUpdate {
                runs.send(()).expect("the test listens");
                // The job runs until the test lets it end. An error means that the test has already
                // ended.
                let _ = left
                    .lock()
                    .expect("no handler panicked")
                    .recv_timeout(PATIENCE);
            }
        };
        let workers = host
            .start(handler)
            .expect("no other thread started workers");
        host.defer(CpuId(1), Job::VmstatUpdate, Due::Now, WhenIdle::Wake);
        running.recv_timeout(PATIENCE).expect("it runs");
        let _entered = host.enter(CpuId(0));
        mm.start(&host);
        mm.run(&host, Job::Shepherd);
        let state = host.job_state(CpuId(1), Job::VmstatUpdate);
        assert_eq!(
            state,
            JobState::Running,
            "{shepherd:?} queued it a second time"
        );
        leave.send(()).expect("the handler listens");
        drop(workers);
        mm.run(&host, Job::Shepherd);
        let state = host.job_state(CpuId(1), Job::VmstatUpdate);
        assert_eq!(state, JobState::Pending, "once it is dormant it is woken");
    }
}
