//! The progress of a command that runs several experiments at once. One bar for all experiments
//! shows the progress and the time that is left.
//!
//! The time left is computed from the work left and from the speed of this command so far. The
//! amount of work in a case (one design with one seed) is the number of seconds that the case took
//! on the computer on which `lab/data/durations.json` was measured. So the time left is right even
//! if the remaining cases take longer than the finished ones.

use std::io::IsTerminal;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::durations::{self, Durations, Stretch};
use super::options::Options;

/// How many steps a full bar has. A bar counts whole steps, and a terminal has fewer columns than
/// this number.
const STEPS: u64 = 1000;

/// The time between two lines if progress is shown as lines.
const BETWEEN_LINES: Duration = Duration::from_secs(60);

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// A bar on standard error, which is drawn only if standard error is a terminal.
    Bar,
    /// One line per minute on standard error.
    Lines,
    /// Progress is not shown.
    Not,
}

/// The progress of all experiments of a command.
#[derive(Clone, Debug)]
pub struct Overall(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    bar: ProgressBar,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    experiments: Vec<Of>,
    shown: Shown,
    began: Instant,
    line_at: Instant,
}

/// The progress of one experiment.
#[derive(Debug, Default)]
struct Of {
    label: String,
    /// The stretches that the experiment is expected to run. A stretch is all cases for one table.
    planned: Vec<Stretch>,
    /// The number of planned cases that finished before the run was resumed. These are the first
    /// planned cases, because an experiment runs all cases of one table before it begins those of
    /// the next.
    skipped: usize,
    /// The stretches (the cases for one table) that the experiment has begun.
    begun: Vec<Begun>,
    ended: bool,
}

/// A stretch (the cases for one table) that has begun.
#[derive(Clone, Copy, Debug)]
struct Begun {
    cases: usize,
    done: usize,
    /// The expected time of one case, in seconds.
    each: f64,
    /// The sum of the times that the finished cases took.
    took: Duration,
}

impl Overall {
    /// Makes the progress of `experiments`, which run in this order with `options`.
    #[must_use]
    pub fn new(experiments: &[&str], options: &Options, shown: Shown) -> Self {
        let durations = Durations::committed();
        let more_seeds = options.seeds.len() as f64 / durations::SEEDS;
        let of = |name: &&str| Of {
            label: (*name).to_owned(),
            planned: planned(durations.of(name, options.effort), more_seeds),
            ..Of::default()
        };
        let now = Instant::now();
        let state = State {
            experiments: experiments.iter().map(of).collect(),
            shown,
            began: now,
            line_at: now + BETWEEN_LINES,
        };
        let bar = match shown {
            Shown::Bar if std::io::stderr().is_terminal() => ProgressBar::new(STEPS),
            _ => ProgressBar::hidden(),
        };
        bar.set_style(style());
        // This tick redraws the bar regularly. Without the tick, the bar would show an old time
        // during a long case.
        bar.enable_steady_tick(Duration::from_millis(500));
        Self(Arc::new(Shared {
            bar,
            state: Mutex::new(state),
        }))
    }

    /// Runs `print`, which writes to the terminal, while the bar is not drawn.
    pub fn beside<R>(&self, print: impl FnOnce() -> R) -> R {
        self.0.bar.suspend(print)
    }

    /// Records that the first `cases` planned cases of the experiment at index `nth` finished
    /// before the run was resumed. So this command does not run them again.
    pub fn skip(&self, nth: usize, cases: usize) {
        self.lock().experiments[nth].skipped = cases;
    }

    /// Records that the experiment at index `nth` has ended.
    pub fn end(&self, nth: usize) {
        let mut state = self.lock();
        state.experiments[nth].ended = true;
        self.draw(&state);
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.0.bar.finish_and_clear();
    }

    /// The measured stretches of the experiment at index `nth`. A stretch is all cases that the
    /// experiment runs for one table.
    #[must_use]
    pub fn measured(&self, nth: usize) -> Vec<Stretch> {
        let state = self.lock();
        let begun = state.experiments[nth].begun.iter();
        begun
            .map(|begun| Stretch {
                cases: begun.cases,
                seconds: (begun.took.as_secs_f64() * 1000.0).round() / 1000.0,
            })
            .collect()
    }

    pub(super) fn label(&self, nth: usize, label: String) {
        let mut state = self.lock();
        state.experiments[nth].label = label;
        self.draw(&state);
    }

    pub(super) fn expect(&self, nth: usize, cases: usize) {
        let mut state = self.lock();
        let of = &mut state.experiments[nth];
        let each = of.each(of.begun.len());
        of.begun.push(Begun {
            cases,
            done: 0,
            each,
            took: Duration::ZERO,
        });
        self.draw(&state);
    }

    pub(super) fn step(&self, nth: usize, took: Duration) {
        let mut state = self.lock();
        let begun = state.experiments[nth].begun.last_mut();
        let begun = begun.expect("cases are expected before one is done");
        begun.done += 1;
        begun.took += took;
        self.draw(&state);
        let now = Instant::now();
        if state.shown == Shown::Lines && now >= state.line_at {
            state.line_at = now + BETWEEN_LINES;
            eprintln!("{}", state.line(now));
        }
    }

    fn draw(&self, state: &State) {
        let share = state.done() / state.total().max(f64::MIN_POSITIVE);
        // The cast saturates at both ends, so it loses only the fraction.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of at most 1, times 1000"
        )]
        self.0.bar.set_position((share * STEPS as f64) as u64);
        let left = state.left(Instant::now());
        self.0.bar.set_message(state.current().to_owned());
        self.0.bar.set_prefix(left.map_or(String::new(), text_of));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().expect("no holder of this lock panics")
    }
}

/// Returns `stretches` (each has the cases for one table) with the expected case counts and
/// durations of a run. This run has `more_seeds` times as many seeds as the runs in the data file.
fn planned(stretches: &[Stretch], more_seeds: f64) -> Vec<Stretch> {
    // The casts saturate, and a number of cases is far below 2⁵², so the casts lose only the
    // fraction.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number of cases"
    )]
    let scaled = |of: &Stretch| Stretch {
        cases: (of.cases as f64 * more_seeds).ceil() as usize,
        seconds: of.seconds * more_seeds,
    };
    stretches.iter().map(scaled).collect()
}

impl Of {
    /// The expected time, in seconds, of one case in the stretch at index `nth`. A stretch has the
    /// cases for one table. If the stretch was not planned, its cases are expected to take as long
    /// as the average planned case.
    fn each(&self, nth: usize) -> f64 {
        let per_case = |of: &[Stretch]| {
            let cases: usize = of.iter().map(|of| of.cases).sum();
            let seconds: f64 = of.iter().map(|of| of.seconds).sum();
            if cases == 0 {
                1.0
            } else {
                seconds / cases as f64
            }
        };
        match self.planned.get(nth) {
            Some(of) => per_case(&[*of]),
            None => per_case(&self.planned),
        }
    }

    fn done(&self) -> f64 {
        self.begun.iter().map(|of| of.done as f64 * of.each).sum()
    }

    fn total(&self) -> f64 {
        if self.ended {
            return self.done();
        }
        let begun: f64 = self.begun.iter().map(|of| of.cases as f64 * of.each).sum();
        // Once a stretch (the cases for one table) has begun, its count of cases excludes skipped
        // cases. So skipped cases are only subtracted from planned stretches.
        let mut skipped = self.skipped;
        let left = |of: &Stretch| {
            let here = skipped.min(of.cases);
            skipped -= here;
            of.seconds * (of.cases - here) as f64 / of.cases.max(1) as f64
        };
        let left: Vec<f64> = self.planned.iter().map(left).collect();
        begun + left.iter().skip(self.begun.len()).sum::<f64>()
    }
}

impl State {
    fn done(&self) -> f64 {
        // Before the first case is done, this fold gives 0, whereas `Iterator::sum` would give -0.
        let each = self.experiments.iter().map(Of::done);
        each.fold(0.0, |sum, done| sum + done)
    }

    fn total(&self) -> f64 {
        self.experiments.iter().map(Of::total).sum()
    }

    /// The label of the first experiment that has not ended.
    fn current(&self) -> &str {
        let running = self.experiments.iter().find(|of| !of.ended);
        running.map_or("", |of| &of.label)
    }

    /// The time left at `now`. `None` before the first case is done.
    fn left(&self, now: Instant) -> Option<Duration> {
        let (done, total) = (self.done(), self.total());
        let elapsed = now.duration_since(self.began).as_secs_f64();
        (done > 0.0).then(|| Duration::from_secs_f64(elapsed * ((total - done) / done).max(0.0)))
    }

    fn line(&self, now: Instant) -> String {
        let percent = 100.0 * self.done() / self.total().max(f64::MIN_POSITIVE);
        let left = self.left(now).map_or(String::new(), text_of);
        format!("{}: {percent:.0} % done{left}", self.current())
    }
}

/// The time left as text. A time of less than a minute is rounded up to a multiple of 5 s.
fn text_of(left: Duration) -> String {
    let seconds = left.as_secs();
    if seconds < 60 {
        format!(", about {} s left", seconds.next_multiple_of(5).max(5))
    } else {
        format!(", about {}:{:02} min left", seconds / 60, seconds % 60)
    }
}

fn style() -> ProgressStyle {
    let style = "{msg} [{bar:25}] {elapsed}{prefix}";
    let style = ProgressStyle::with_template(style).expect("a constant that a test renders");
    style.progress_chars("=> ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overall(planned: [&[(usize, f64)]; 2]) -> Overall {
        let options = Options::of_seeds(6);
        let overall = Overall::new(&["a", "b"], &options, Shown::Not);
        for (of, planned) in overall.lock().experiments.iter_mut().zip(planned) {
            let stretch = |&(cases, seconds): &(usize, f64)| Stretch { cases, seconds };
            of.planned = planned.iter().map(stretch).collect();
        }
        overall
    }

    fn left_after(overall: &Overall, elapsed: u64) -> Option<u64> {
        let state = overall.lock();
        let left = state.left(state.began + Duration::from_secs(elapsed));
        left.map(|left| left.as_secs())
    }

    #[test]
    fn the_time_left_counts_cases_by_their_expected_time() {
        // The work is 10 cases of 1 s and 2 cases of 45 s, which is 100 s in total.
        let overall = overall([&[(10, 10.0)], &[(2, 90.0)]]);
        assert_eq!(left_after(&overall, 5), None);
        overall.expect(0, 10);
        (0..10).for_each(|_| overall.step(0, Duration::from_secs(2)));
        // The first 10 s of the 100 s of work took 20 s: this computer is half as fast as the
        // computer on which the durations in the data file were measured.
        assert_eq!(left_after(&overall, 20), Some(180));
        overall.end(0);
        overall.expect(1, 2);
        overall.step(1, Duration::from_secs(90));
        assert_eq!(left_after(&overall, 110), Some(90));
        assert_eq!(
            overall.measured(1),
            [Stretch {
                cases: 2,
                seconds: 90.0
            }]
        );
    }

    #[test]
    fn a_run_with_other_numbers_of_cases_is_planned_again() {
        let overall = overall([&[(6, 6.0), (10, 30.0)], &[]]);
        // The user has chosen fewer seeds. So the first stretch (the cases for the first table) has
        // 3 cases, and not 6 as in the data file.
        overall.expect(0, 3);
        assert!((overall.lock().total() - 33.0).abs() < 1e-9);
        overall.expect(0, 5);
        assert!((overall.lock().total() - 18.0).abs() < 1e-9);
        // The data file has no entry for this stretch (the cases for one table), so its cases are
        // expected to take the average time.
        overall.expect(0, 4);
        assert!((overall.lock().total() - 27.0).abs() < 1e-9);
        // If the experiment ends early, it has no work left.
        overall.end(0);
        assert!(overall.lock().total() < 1e-9);
    }

    #[test]
    fn cases_that_finished_before_a_run_was_resumed_need_no_time() {
        let overall = overall([&[(6, 6.0), (10, 30.0), (2, 8.0)], &[]]);
        overall.skip(0, 11);
        assert!((overall.lock().total() - 23.0).abs() < 1e-9);
        // Two of the skipped cases run again. They are cases for the first table, which take 1 s
        // each.
        overall.expect(0, 2);
        assert!((overall.lock().total() - 25.0).abs() < 1e-9);
        (0..2).for_each(|_| overall.step(0, Duration::from_secs(1)));
        assert_eq!(left_after(&overall, 2), Some(23));
        overall.expect(0, 5);
        assert_eq!(left_after(&overall, 2), Some(23));
        overall.expect(0, 2);
        assert_eq!(left_after(&overall, 2), Some(23));
    }

    #[test]
    fn the_label_is_that_of_the_first_experiment_that_runs() {
        let overall = overall([&[], &[]]);
        overall.label(1, "b on a machine".to_owned());
        assert_eq!(overall.lock().current(), "a");
        overall.end(0);
        assert_eq!(overall.lock().current(), "b on a machine");
        let line = overall.lock().line(Instant::now());
        assert_eq!(line, "b on a machine: 0 % done");
    }

    #[test]
    fn times_left_are_short() {
        assert_eq!(text_of(Duration::from_secs(3)), ", about 5 s left");
        assert_eq!(text_of(Duration::from_secs(59)), ", about 60 s left");
        assert_eq!(text_of(Duration::from_secs(367)), ", about 6:07 min left");
    }
}
