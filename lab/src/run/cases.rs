//! Runs independent cases in parallel on the host, in a fair order.
//!
//! Workers take the cases strictly in their order. A matrix lists all designs with one seed before
//! it lists any design with the next seed. So all designs with one seed run while the host is in
//! about the same state. A gradual change of the host's speed therefore cannot look like a
//! difference between designs. Results are returned in the order of the cases, so a report does not
//! depend on the number of workers.

use std::any::Any;
use std::fmt::Debug;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Instant;

use plimsoll_sim::NoStack;

use crate::run::jobs::{Jobs, Stopped};
use crate::run::progress::Progress;

/// One run to perform: a design and a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case<D> {
    /// The design to run.
    pub design: D,
    /// The seed of all random inputs of the run.
    pub seed: u64,
}

/// Returns a case for every design with every seed: first all designs with the first seed, then all
/// designs with the second seed, and so on.
#[must_use]
pub fn matrix<D: Clone>(designs: &[D], seeds: &[u64]) -> Vec<Case<D>> {
    let of_seed = |&seed: &u64| designs.iter().map(move |design| (design.clone(), seed));
    seeds
        .iter()
        .flat_map(of_seed)
        .map(|(design, seed)| Case { design, seed })
        .collect()
}

/// Runs all `cases`, several at a time if `jobs` allows it, and returns the results in the order of
/// `cases`.
///
/// # Panics
/// If a case panics. The message contains the case's `Debug` text, so that the case can be run
/// again alone. If the host did not have enough memory for the stack of a simulated task, the
/// payload of the panic is the [`NoStack`]. If [`Jobs::stop`] was called, the payload is
/// [`Stopped`].
pub fn run_cases<C, S>(
    cases: &[C],
    jobs: &Jobs,
    progress: &Progress,
    run: impl Fn(&C) -> S + Sync,
) -> Vec<S>
where
    C: Debug + Sync,
    S: Send,
{
    progress.expect(cases.len());
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::with_capacity(cases.len()));
    let work = || {
        // Relaxed: the counter only assigns each case to one worker. The mutex around the results
        // orders all writes of results by workers before this function reads them.
        while let Some((nth, case)) = take(cases, next.fetch_add(1, Relaxed)) {
            let running = jobs.wait();
            let began = Instant::now();
            let result = panic::catch_unwind(AssertUnwindSafe(|| {
                if jobs.is_stopped() {
                    panic::resume_unwind(Box::new(Stopped));
                }
                run(case)
            }));
            drop(running);
            // `run_cases` panics if a case fails, so the remaining cases are of no use. Make the
            // workers take no more cases.
            if result.is_err() {
                next.store(cases.len(), Relaxed);
            }
            results
                .lock()
                .expect("no worker panics while it holds the lock")
                .push((nth, result));
            progress.step_after(began.elapsed());
        }
    };
    thread::scope(|scope| {
        let workers = jobs.most().min(cases.len());
        (0..workers).for_each(|_| drop(scope.spawn(work)));
    });
    let mut results = results
        .into_inner()
        .expect("every worker has ended without panicking");
    results.sort_unstable_by_key(|(nth, _)| *nth);
    let finish = |(nth, result): (usize, thread::Result<S>)| match result {
        Ok(result) => result,
        // The host did not have enough memory for the stacks of tasks, so the case is not at fault.
        // The caller gets the [`NoStack`], and can tell the user what to do.
        Err(cause) if cause.is::<NoStack>() => panic::resume_unwind(cause),
        // The caller has stopped the run, and expects this payload.
        Err(cause) if cause.is::<Stopped>() => panic::resume_unwind(cause),
        Err(cause) => panic!("{:?} panicked: {}", cases[nth], panic_text(&*cause)),
    };
    results.into_iter().map(finish).collect()
}

fn take<C>(cases: &[C], nth: usize) -> Option<(usize, &C)> {
    cases.get(nth).map(|case| (nth, case))
}

fn panic_text(cause: &(dyn Any + Send)) -> &str {
    let owned = cause.downcast_ref::<String>().map(String::as_str);
    owned
        .or_else(|| cause.downcast_ref::<&str>().copied())
        .unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;

    fn jobs(jobs: usize) -> Jobs {
        Jobs::new(NonZeroUsize::new(jobs).expect("not zero"))
    }

    #[test]
    fn a_matrix_runs_every_design_of_a_seed_before_the_next_seed() {
        let cases = matrix(&["a", "b"], &[7, 9]);
        let order: Vec<_> = cases.iter().map(|case| (case.design, case.seed)).collect();
        assert_eq!(order, [("a", 7), ("b", 7), ("a", 9), ("b", 9)]);
    }

    #[test]
    fn results_keep_the_order_of_the_cases_with_any_number_of_workers() {
        let cases: Vec<u64> = (0..100).collect();
        for workers in [1, 2, 7, 200] {
            let results = run_cases(&cases, &jobs(workers), &Progress::hidden(), |case| {
                // The earlier a case starts, the longer it takes, so cases finish out of order.
                (0..(100 - case) * 1000).fold(0, u64::wrapping_add);
                case * 2
            });
            assert!(results.iter().copied().eq((0..100).map(|case| case * 2)));
        }
    }

    #[test]
    fn no_case_is_no_result() {
        let results = run_cases(&[(); 0], &jobs(4), &Progress::hidden(), |()| ());
        assert!(results.is_empty());
    }

    #[test]
    #[should_panic(expected = r#"Case { design: "b", seed: 9 } panicked: lost page 3"#)]
    fn a_panic_names_its_case() {
        let cases = matrix(&["a", "b"], &[7, 9]);
        run_cases(&cases, &jobs(2), &Progress::hidden(), |case| {
            assert!(case.seed != 9 || case.design != "b", "lost page {}", 3);
        });
    }

    #[test]
    fn a_run_that_is_stopped_takes_no_more_cases() {
        let (two, ran) = (jobs(2), AtomicUsize::new(0));
        let stopped = panic::catch_unwind(AssertUnwindSafe(|| {
            run_cases(&[(); 100], &two, &Progress::hidden(), |()| {
                if ran.fetch_add(1, Relaxed) == 9 {
                    two.stop();
                }
            })
        }));
        assert!(stopped.expect_err("the run has stopped").is::<Stopped>());
        let ran = ran.into_inner();
        assert!((10..=11).contains(&ran), "{ran} cases ran");
    }

    #[test]
    fn a_machine_without_room_for_its_tasks_is_no_fault_of_the_case() {
        let refusal = NoStack {
            stacks: 3,
            maps_max: None,
        };
        let ran = panic::catch_unwind(|| {
            run_cases(&[1, 2], &jobs(2), &Progress::hidden(), |_| -> u32 {
                panic::resume_unwind(Box::new(refusal))
            })
        });
        let cause = ran.expect_err("the refusal comes through");
        assert_eq!(cause.downcast_ref(), Some(&refusal));
    }
}
