//! The progress of a run: a bar on standard error if that is a terminal, nothing otherwise.

use std::borrow::Cow;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar that several threads may advance.
#[derive(Clone, Debug)]
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar if standard error is a terminal; silent in a pipe.
    #[must_use]
    pub fn new() -> Self {
        // A new bar draws on standard error, and indicatif hides it if that is no terminal.
        Self {
            bar: ProgressBar::no_length(),
        }
    }

    /// No bar at all, for tests and for callers that have their own.
    #[must_use]
    pub fn hidden() -> Self {
        Self {
            bar: ProgressBar::hidden(),
        }
    }

    /// Starts the bar anew under `label`, without steps; [`Progress::expect`] adds those.
    pub fn start(&self, label: impl Into<Cow<'static, str>>) {
        self.bar.set_style(style());
        self.bar.reset();
        self.bar.set_length(0);
        self.bar.set_message(label);
    }

    /// Adds `steps` to the steps that are expected.
    pub fn expect(&self, steps: usize) {
        self.bar.inc_length(steps as u64);
    }

    /// Advances the bar by one step.
    pub fn step(&self) {
        self.bar.inc(1);
    }

    /// Takes the bar away, so that results print on a clean line.
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
