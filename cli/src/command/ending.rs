//! The end of the output of a command that prints several reports: `plimsoll reproduce`, and
//! `plimsoll results show` for a run in the store.

use plimsoll_lab::experiment;
use plimsoll_lab::report::answer::Answer;
use plimsoll_lab::report::misses::{Beside, Counts};
use plimsoll_lab::report::{Report, Table, summary};

use crate::output::{BadInput, Sink};

/// Writes the part after the last report. If there are several reports, writes a table of all
/// answers. `figures` is a table of the figures published for Linux beside ours. If `figures` is
/// given and the output is verbose, writes this table. If the output is not verbose, writes a
/// sentence instead, which says how many of these figures match.
pub(crate) fn write(
    sink: &mut Sink,
    reports: &[Report],
    figures: Option<&Table>,
) -> anyhow::Result<()> {
    if reports.len() > 1 {
        sink.write_table(&summary::table(reports))?;
    }
    match figures {
        Some(table) if sink.is_verbose() => sink.write_table(table),
        Some(_) => sink.write_paragraph(&Counts::of(&figures_of(reports)).sentence()),
        None => Ok(()),
    }
}

/// Returns an error if all runs in each of `reports` were identical, so that nothing was compared.
/// The caller has already written and kept the reports, which say why nothing differed.
pub(crate) fn check_differs(reports: &[Report]) -> Result<(), BadInput> {
    let mut answers = reports.iter().map(|report| &report.answer);
    if reports.is_empty() || !answers.all(Answer::is_all_identical) {
        return Ok(());
    }
    let refused = "nothing was compared: all designs ran identically on every seed; the report \
                   says why, and what to run instead";
    Err(BadInput(refused.to_owned()))
}

/// Returns the figures that Linux patches or their discussions report for these experiments, each
/// beside our figure. Also returns the published figures that no experiment measures.
pub(crate) fn figures_of(reports: &[Report]) -> Vec<Beside> {
    let of_reports = reports.iter().flat_map(|report| report.figures.clone());
    of_reports.chain(experiment::unmeasured()).collect()
}
