//! How much of a report is shown: its answer, everything, or the metrics that the user names.

use super::Report;
use crate::error::Error;

/// How much of a report is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail<'a> {
    /// The report's answer to its question, and how many verdicts of each kind there are.
    Answer,
    /// The report's answer to its question, and everything else that the report has.
    Whole,
    /// The report's answer to its question, and the rows and verdicts of the metrics with these
    /// names. The suffix `_ns` of a metric can be left out of a name.
    Metrics(&'a [String]),
}

impl<'a> Detail<'a> {
    /// The detail that the user asks for. If `metrics` is not empty, these metrics are shown.
    /// Otherwise, the whole report is shown if `verbose` is true, and only the answer if it is
    /// false.
    #[must_use]
    pub fn of(verbose: bool, metrics: &'a [String]) -> Self {
        match (metrics, verbose) {
            ([], false) => Self::Answer,
            ([], true) => Self::Whole,
            (metrics, _) => Self::Metrics(metrics),
        }
    }

    /// Returns `report` with only the parts that this level of detail shows. If the user has named
    /// metrics, the result has neither tables nor a conclusion.
    #[must_use]
    pub fn of_report(self, report: &Report) -> Report {
        let mut shown = report.clone();
        if let Self::Metrics(names) = self {
            let is_named = |metric: &str| names.iter().any(|name| names_metric(name, metric));
            shown.rows.retain(|row| is_named(&row.metric.name));
            shown.verdicts.retain(|row| is_named(&row.metric.name));
            shown.tables.clear();
            shown.finding.clear();
            shown.decided = None;
        }
        shown
    }
}

/// Returns whether `name`, which the user wrote, means the metric `metric`.
pub(crate) fn names_metric(name: &str, metric: &str) -> bool {
    name == metric || metric.strip_suffix("_ns") == Some(name)
}

/// Checks that each of `names` is the name of a metric in `known`.
///
/// # Errors
/// [`Error::Unknown`] for the first name that is not in `known`. The error offers the nearest known
/// names. [`Error::Invalid`] for the first name that is in `unmeasured`, the names of metrics that
/// exist, but that no run has measured.
pub fn check<S: AsRef<str>>(names: &[String], known: &[S], unmeasured: &[S]) -> Result<(), Error> {
    let known: Vec<&str> = known.iter().map(AsRef::as_ref).collect();
    for name in names {
        let mut not = unmeasured.iter().map(AsRef::as_ref);
        if !known.iter().any(|metric| names_metric(name, metric))
            && not.any(|metric| names_metric(name, metric))
        {
            return Err(Error::Invalid(format!(
                "no run measured the metric `{name}`; longer runs may measure it"
            )));
        }
        if !known.iter().any(|metric| names_metric(name, metric)) {
            return Err(Error::unknown("metric", name, &known));
        }
    }
    Ok(())
}

/// The names of the metrics that have rows in `report`. No name occurs twice.
#[must_use]
pub fn metrics(report: &Report) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for row in &report.rows {
        if !names.contains(&&*row.metric.name) {
            names.push(&row.metric.name);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn the_named_metrics_remain_with_their_verdicts() {
        let names = ["total_wait".to_owned()];
        let shown = Detail::of(true, &names).of_report(&sample());
        assert_eq!(metrics(&shown), ["total_wait_ns"]);
        assert_eq!((shown.rows.len(), shown.verdicts.len()), (2, 1));
        assert!(shown.tables.is_empty() && shown.finding.is_empty());
        assert_eq!(shown.answer, sample().answer);
        for whole in [Detail::of(true, &[]), Detail::of(false, &[])] {
            assert_eq!(whole.of_report(&sample()).rows.len(), sample().rows.len());
        }
    }

    #[test]
    fn an_unknown_metric_is_bad_input_that_offers_names() {
        let report = sample();
        let known = metrics(&report);
        check(
            &["contentions".to_owned(), "total_wait".to_owned()],
            &known,
            &[],
        )
        .unwrap();
        let error = check(&["contention".to_owned()], &known, &[]).unwrap_err();
        assert!(error.is_bad_input());
        assert_eq!(
            error.to_string(),
            "no metric is called `contention`; did you mean `contentions`?"
        );
        let error = check(&["task_time".to_owned()], &known, &["task_time_ns"]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "no run measured the metric `task_time`; longer runs may measure it"
        );
    }
}
