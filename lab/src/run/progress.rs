//! The progress of a run: a bar on standard error, if standard error is a terminal, and the journal
//! that keeps the finished cases.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::journal::{Begun, Cases, Journal, Title};
use super::overall::Overall;
use crate::report::visible::visible;

/// A progress bar that several threads can advance.
#[derive(Clone, Debug)]
pub struct Progress {
    bar: ProgressBar,
    /// The progress of the command and the index of this experiment, if the run is one experiment
    /// of a command. In this case, only the command has a bar. `None` for any other run.
    of: Option<(Overall, usize)>,
    /// The name of the comparison that is running. All clones share the name.
    title: Arc<Mutex<Title>>,
    /// The journal that keeps finished cases. `None` if no journal keeps them.
    begun: Option<Arc<Begun>>,
}

impl Progress {
    /// A bar on standard error, which is drawn only if standard error is a terminal.
    #[must_use]
    pub fn new() -> Self {
        // A new bar draws on standard error, and indicatif hides it if standard error is not a
        // terminal.
        Self {
            bar: ProgressBar::no_length(),
            of: None,
            title: Arc::default(),
            begun: None,
        }
    }

    /// A bar that is never drawn, for tests and for callers that show their own progress.
    #[must_use]
    pub fn hidden() -> Self {
        Self {
            bar: ProgressBar::hidden(),
            of: None,
            title: Arc::default(),
            begun: None,
        }
    }

    /// The progress of the experiment at index `nth` of a command, whose progress is `overall`.
    #[must_use]
    pub fn of(overall: Overall, nth: usize) -> Self {
        Self {
            of: Some((overall, nth)),
            ..Self::hidden()
        }
    }

    /// Returns this progress with `journal`. The journal has the cases that an earlier run
    /// finished, and stores each case that finishes now. `experiment` is the experiment or the
    /// command that runs.
    #[must_use]
    pub fn kept_in(self, journal: Arc<dyn Journal>, experiment: &str) -> Self {
        Self {
            begun: Some(Arc::new(Begun::new(journal, experiment))),
            ..self
        }
    }

    /// Restarts the bar for a comparison that runs `what` on `machine`. `about` distinguishes the
    /// comparison from the main comparison of the same report, and is empty for the main
    /// comparison.
    pub fn start_on(&self, what: &str, machine: &str, about: &str) {
        let comma = if about.is_empty() { "" } else { ", " };
        self.label(format!("{what} on {machine}{comma}{about}"));
        *self.lock_title() = Title {
            what: what.to_owned(),
            machine: machine.to_owned(),
            about: about.to_owned(),
        };
    }

    /// Restarts the bar with the text `label` and no steps. [`Progress::expect`] adds steps. For a
    /// comparison on a machine, use [`Progress::start_on`] instead, so that the journal has the
    /// machine's name.
    pub fn start(&self, label: impl Into<Cow<'static, str>>) {
        let label = label.into();
        *self.lock_title() = Title {
            what: label.clone().into_owned(),
            ..Title::default()
        };
        self.label(label);
    }

    /// Begins a comparison in the journal (the file of finished cases). Returns `None` if there is
    /// no journal.
    pub(crate) fn begin_comparison(&self) -> Option<Cases> {
        let begun = self.begun.as_ref()?;
        Some(begun.begin(self.lock_title().clone()))
    }

    /// The name of the comparison that is running, if it is the main comparison of a report on a
    /// machine.
    pub(crate) fn main_comparison(&self) -> Option<Title> {
        let title = self.lock_title().clone();
        (title.about.is_empty() && !title.machine.is_empty()).then_some(title)
    }

    fn lock_title(&self) -> MutexGuard<'_, Title> {
        self.title.lock().expect("no holder of this lock panics")
    }

    fn label(&self, label: impl Into<Cow<'static, str>>) {
        let label = visible(&label.into()).into_owned();
        if let Some((overall, nth)) = &self.of {
            return overall.label(*nth, label);
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

    /// Advances the bar by one step, which took the time `took`.
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
