//! Shows the progress of a run as a bar on standard error, if that is a terminal.

use std::borrow::Cow;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::overall::Overall;

/// A progress bar that several threads may advance.
#[derive(Clone, Debug)]
pub struct Progress {
    bar: ProgressBar,
    /// If the run is one experiment of a command: the progress of the command, which has the only
    /// bar, and the index of the experiment.
    of: Option<(Overall, usize)>,
}

impl Progress {
    /// A bar on standard error if that is a terminal; otherwise it is never drawn.
    #[must_use]
    pub fn new() -> Self {
        // A new bar draws on standard error, and indicatif hides it if standard error is not a
        // terminal.
        Self {
            bar: ProgressBar::no_length(),
            of: None,
        }
    }

    /// A bar that is never drawn, for tests and for callers that show their own progress.
    #[must_use]
    pub fn hidden() -> Self {
        Self {
            bar: ProgressBar::hidden(),
            of: None,
        }
    }

    /// The progress of the experiment at index `nth` of a command.
    #[must_use]
    pub fn of(overall: Overall, nth: usize) -> Self {
        Self {
            of: Some((overall, nth)),
            ..Self::hidden()
        }
    }

    /// Restarts the bar as `label` with no steps; [`Progress::expect`] adds steps.
    pub fn start(&self, label: impl Into<Cow<'static, str>>) {
        if let Some((overall, nth)) = &self.of {
            return overall.label(*nth, label.into().into_owned());
        }
        self.bar.set_style(style());
        self.bar.reset();
        self.bar.set_length(0);
        self.bar.set_message(label);
    }

    /// Adds `steps` to the number of expected steps.
    pub fn expect(&self, steps: usize) {
        match &self.of {
            Some((overall, nth)) => overall.expect(*nth, steps),
            None => self.bar.inc_length(steps as u64),
        }
    }

    /// Advances the bar by one step.
    pub fn step(&self) {
        self.step_after(Duration::ZERO);
    }

    /// Advances the bar by one step, which took `took`.
    pub(super) fn step_after(&self, took: Duration) {
        match &self.of {
            Some((overall, nth)) => overall.step(*nth, took),
            None => self.bar.inc(1),
        }
    }

    /// Removes the bar, so that results print on a clean line.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

fn style() -> ProgressStyle {
    let style = "{msg} [{bar:30}] {pos}/{len} {elapsed} elapsed, {eta} left";
    let style = ProgressStyle::with_template(style).expect("a constant that a test renders");
    style.progress_chars("=> ")
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_counts_and_restarts() {
        let progress = Progress::hidden();
        for steps in [3, 2] {
            progress.start("vmstat");
            progress.expect(steps);
            (0..steps).for_each(|_| progress.step());
            assert_eq!(progress.bar.position(), steps as u64);
        }
        progress.finish();
    }
}
