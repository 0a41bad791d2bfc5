//! A deferred job runs once, on its own CPU, and not before its time. If the job is cancelled, it
//! does not run; if it is deferred again, only the new time counts.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};
use std::{panic, thread};

use plimsoll_host::Host;
use plimsoll_host::workers::{StartError, Workers};
use plimsoll_mm::machine::{Due, Job, JobState, Machine, WhenIdle};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Jiffies, Nanos};

const CPU: CpuId = CpuId(1);
const JOB: Job = Job::VmstatUpdate;
/// The longest time for which a test waits for a job to start. It is much longer than a job needs.
const PATIENCE: Duration = Duration::from_secs(20);

fn host() -> Host {
    Host::with_topology(Topology::flat(3))
}

/// Starts workers. Whenever a job runs, they report the CPU, the job and the time.
fn start(host: &Host) -> (Workers, Receiver<(CpuId, Job, Nanos)>) {
    let (sender, runs) = mpsc::channel();
    let report = move |host: &Host, job| {
        // Sending fails if the test is over.
        let _ = sender.send((host.this_cpu(), job, host.now()));
    };
    (
        host.start(report).expect("no other thread started workers"),
        runs,
    )
}

fn wait_for(host: &Host, state: JobState) {
    let start = Instant::now();
    while host.job_state(CPU, JOB) != state {
        assert!(start.elapsed() < PATIENCE, "the job never became {state:?}");
        thread::yield_now();
    }
}

#[test]
fn a_job_runs_once_on_its_cpu_and_not_early() {
    let host = host();
    let (_workers, runs) = start(&host);
    for due in [
        Due::Now,
        Due::Wheel(Jiffies(3)),
        Due::At(Nanos(host.now().0 + 2_000_000)),
    ] {
        let deferred = host.now();
        host.defer(CPU, JOB, due, WhenIdle::Wake);
        let (cpu, job, at) = runs.recv_timeout(PATIENCE).expect("the job runs");
        assert_eq!((cpu, job), (CPU, JOB));
        let not_before = match due {
            Due::Now => deferred,
            Due::Wheel(_) => Nanos(deferred.0 + 3_000_000),
            Due::At(at) => at,
        };
        assert!(
            at >= not_before,
            "{due:?} ran at {at:?}, deferred at {deferred:?}"
        );
        wait_for(&host, JobState::Dormant);
    }
    assert!(runs.try_recv().is_err(), "each job ran once");
}

#[test]
fn a_job_waits_for_workers_and_a_cancelled_one_never_runs() {
    let host = host();
    host.defer(CPU, JOB, Due::Now, WhenIdle::Defer);
    host.defer(CpuId(2), JOB, Due::Now, WhenIdle::Defer);
    assert_eq!(host.job_state(CPU, JOB), JobState::Pending);
    assert_eq!(host.job_state(CPU, Job::Shepherd), JobState::Dormant);
    host.cancel(CPU, JOB);
    assert_eq!(host.job_state(CPU, JOB), JobState::Dormant);
    let (workers, runs) = start(&host);
    let (cpu, ..) = runs
        .recv_timeout(PATIENCE)
        .expect("the other CPU's job runs");
    assert_eq!(cpu, CpuId(2));
    drop(workers);
    assert!(runs.try_recv().is_err(), "the cancelled one did not run");
}

#[test]
fn the_last_deferral_counts() {
    let host = host();
    let (_workers, runs) = start(&host);
    let hour = Nanos(host.now().0 + 3600 * Nanos::SECOND.0);
    host.defer(CPU, JOB, Due::At(hour), WhenIdle::Wake);
    host.defer(CPU, JOB, Due::Now, WhenIdle::Wake);
    runs.recv_timeout(PATIENCE)
        .expect("the earlier time replaced the later");
    host.defer(
        CPU,
        JOB,
        Due::At(Nanos(host.now().0 + 50_000_000)),
        WhenIdle::Wake,
    );
    host.defer(CPU, JOB, Due::At(hour), WhenIdle::Wake);
    assert!(
        runs.recv_timeout(Duration::from_millis(100)).is_err(),
        "and the later the earlier"
    );
    assert_eq!(host.job_state(CPU, JOB), JobState::Pending);
}

#[test]
fn a_handler_sees_itself_run_and_may_defer_itself() {
    const RUNS: u32 = 3;
    let host = host();
    let (sender, states) = mpsc::channel();
    let meet = Arc::new(Barrier::new(2));
    let (inside, runs) = (Arc::clone(&meet), AtomicU32::new(0));
    let handler = move |host: &Host, job| {
        let cpu = host.this_cpu();
        inside.wait();
        inside.wait();
        let running = host.job_state(cpu, job);
        // Relaxed is enough: only one worker runs the job, and one run follows the other.
        if runs.fetch_add(1, Relaxed) + 1 < RUNS {
            host.defer(cpu, job, Due::Wheel(Jiffies(0)), WhenIdle::Defer);
        }
        // Sending fails if the test is over.
        let _ = sender.send([running, host.job_state(cpu, job)]);
    };
    let _workers = host
        .start(handler)
        .expect("no other thread started workers");
    host.defer(CPU, JOB, Due::Now, WhenIdle::Wake);
    for run in 1..=RUNS {
        meet.wait();
        assert_eq!(host.job_state(CPU, JOB), JobState::Running);
        meet.wait();
        let seen = states.recv_timeout(PATIENCE).expect("the handler reports");
        let after = if run < RUNS {
            JobState::Pending
        } else {
            JobState::Running
        };
        assert_eq!(seen, [JobState::Running, after]);
    }
    wait_for(&host, JobState::Dormant);
}

#[test]
fn workers_start_once_and_again_after_they_stopped() {
    let host = host();
    let (workers, _runs) = start(&host);
    assert!(matches!(host.start(|_, _| ()), Err(StartError::Started)));
    drop(workers);
    let (_workers, runs) = start(&host);
    host.defer(CPU, JOB, Due::Now, WhenIdle::Wake);
    runs.recv_timeout(PATIENCE).expect("the second set runs it");
}

#[test]
fn a_handler_may_stop_its_own_workers() {
    let host = host();
    let (sender, workers) = mpsc::channel::<Workers>();
    let workers = Mutex::new(workers);
    let handler = move |_: &Host, _| {
        let workers = workers.lock().expect("no handler panicked");
        drop(workers.recv_timeout(PATIENCE).expect("the test sends them"));
    };
    let started = host
        .start(handler)
        .expect("no other thread started workers");
    sender.send(started).expect("the handler listens");
    host.defer(CPU, JOB, Due::Now, WhenIdle::Wake);
    wait_for(&host, JobState::Dormant);
    assert!(matches!(host.start(|_, _| ()), Err(StartError::Started)));
}

#[test]
fn a_handlers_panic_reaches_who_stops_the_workers() {
    let host = host();
    let workers = host
        .start(|_, _| panic!("on purpose"))
        .expect("no other thread started workers");
    host.defer(CPU, JOB, Due::Now, WhenIdle::Wake);
    wait_for(&host, JobState::Dormant);
    let stopped = panic::catch_unwind(panic::AssertUnwindSafe(|| drop(workers)));
    let payload = stopped.expect_err("the panic comes through");
    assert_eq!(payload.downcast_ref(), Some(&"on purpose"));
}

#[test]
fn a_handlers_panic_is_reported_and_the_jobs_after_it_run() {
    let host = host();
    let (sender, runs) = mpsc::channel();
    let handler = move |host: &Host, job| {
        assert_eq!(host.this_cpu(), CPU, "on purpose");
        // Sending fails if the test is over.
        let _ = sender.send(job);
    };
    let workers = host
        .start(handler)
        .expect("no other thread started workers");
    assert_eq!(workers.panicked(), None);
    let elsewhere = CpuId(2);
    for count in [1, 2] {
        host.defer(elsewhere, Job::Shepherd, Due::Now, WhenIdle::Wake);
        let deadline = Instant::now() + PATIENCE;
        while workers
            .panicked()
            .is_none_or(|panicked| panicked.count < count)
        {
            assert!(Instant::now() < deadline, "the panic is reported");
            thread::yield_now();
        }
    }
    let panicked = workers.panicked().expect("it is reported");
    assert_eq!((panicked.cpu, panicked.job), (elsewhere, Job::Shepherd));
    assert_eq!(
        panicked.to_string(),
        "2 handlers panicked, first that of Shepherd on CPU 2"
    );
    host.defer(CPU, JOB, Due::Now, WhenIdle::Wake);
    assert_eq!(runs.recv_timeout(PATIENCE), Ok(JOB), "others go on");
    panic::catch_unwind(panic::AssertUnwindSafe(|| drop(workers)))
        .expect_err("the panic comes through");
}
