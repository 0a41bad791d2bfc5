//! The journal of a run: a file with a line of JSON for each finished case (one design on one
//! seed).
//!
//! A line is written by one write, as soon as its case has finished. So if the process is killed,
//! only the last line can be incomplete. If a write fails, the journal cuts the file after the last
//! whole line, tells the user once, and stores no more cases. The run then continues, because its
//! report does not need the journal.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};

use serde::{Deserialize, Serialize};

use crate::measure::metric::{Better, Metric, Unit};
use crate::measure::sample::Sample;
use crate::run::journal::{ComparisonKey, Journal};

/// One finished case (the run of one design on one seed): a line of the file `cases.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseLine {
    /// The comparison.
    #[serde(flatten)]
    pub comparison: ComparisonKey,
    /// The design.
    pub design: String,
    /// The seed.
    pub seed: u64,
    /// The hash of everything that happened in the run, as 16 hexadecimal digits.
    pub hash: String,
    /// What the run measured.
    pub metrics: Vec<Measured>,
}

/// One metric of a case (one design on one seed).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The name of the metric.
    pub metric: String,
    /// The unit of the value.
    pub unit: Unit,
    /// The direction in which the metric improves.
    pub better: Better,
    /// The value.
    #[serde(with = "crate::measure::number")]
    pub value: f64,
}

impl CaseLine {
    pub(super) fn of(comparison: &ComparisonKey, design: &str, seed: u64, sample: &Sample) -> Self {
        let measured = |(metric, value): &(Metric, f64)| Measured {
            metric: metric.name.to_string(),
            unit: metric.unit,
            better: metric.better,
            value: *value,
        };
        Self {
            comparison: comparison.clone(),
            design: design.to_owned(),
            seed,
            hash: format!("{:016x}", sample.hash),
            metrics: sample.metrics.iter().map(measured).collect(),
        }
    }

    /// The value of a metric. `None` if the case did not measure the metric.
    pub(super) fn value(&self, metric: &str) -> Option<f64> {
        let found = self.metrics.iter().find(|sample| sample.metric == metric);
        found.map(|sample| sample.value)
    }

    /// The hash and the measured values that this line holds. `None` if the hash in the line is not
    /// a hexadecimal number.
    fn sample(self) -> Option<Sample> {
        let metric = |of: Measured| {
            let value = of.value;
            (of.into_metric(), value)
        };
        Some(Sample {
            hash: u64::from_str_radix(&self.hash, 16).ok()?,
            metrics: self.metrics.into_iter().map(metric).collect(),
        })
    }
}

impl Measured {
    /// Converts a measured value to its metric: the name, the unit and the better direction.
    pub(super) fn into_metric(self) -> Metric {
        Metric {
            name: self.metric.into(),
            unit: self.unit,
            better: self.better,
        }
    }
}

/// The output of a journal: a file, or a stand-in for a file in a test.
pub(super) trait Out: Debug + Send {
    /// Appends `line` to the text.
    fn append(&mut self, line: &[u8]) -> io::Result<()>;

    /// Shortens the text to `length` bytes.
    fn cut(&mut self, length: u64) -> io::Result<()>;
}

impl Out for File {
    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        self.write_all(line)
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }
}

type Key = (ComparisonKey, String, u64);

/// The journal of a run: the file with its finished cases (one design on one seed each).
#[derive(Debug)]
pub(super) struct FileJournal<O: Out = File> {
    /// The name of the file, for messages.
    name: PathBuf,
    /// The cases that finished before the run was resumed.
    known: BTreeMap<Key, Sample>,
    state: Mutex<State<O>>,
}

#[derive(Debug)]
struct State<O> {
    out: O,
    /// The length of all completely written lines, in bytes.
    length: u64,
    failed: Option<String>,
}

impl<O: Out> FileJournal<O> {
    /// Makes a journal that appends lines to `out`. The first `length` bytes of `out` have the
    /// lines `lines`.
    pub(super) fn new(name: PathBuf, out: O, lines: Vec<CaseLine>, length: u64) -> Self {
        let known = lines.into_iter().filter_map(|line| {
            let key = (line.comparison.clone(), line.design.clone(), line.seed);
            Some((key, line.sample()?))
        });
        let state = State {
            out,
            length,
            failed: None,
        };
        Self {
            name,
            known: known.collect(),
            state: Mutex::new(state),
        }
    }

    /// The number of cases that finished before the run was resumed.
    pub(super) fn known(&self) -> usize {
        self.known.len()
    }

    /// The number of cases of `experiment` that finished before the run was resumed.
    pub(super) fn known_of(&self, experiment: &str) -> usize {
        let of = |key: &&Key| key.0.experiment == experiment;
        self.known.keys().filter(of).count()
    }

    /// Returns whether no case has finished.
    pub(super) fn is_empty(&self) -> bool {
        self.lock().length == 0
    }

    /// The reason why the journal could not keep a case. `None` if the journal kept all cases.
    pub(super) fn failed(&self) -> Option<String> {
        self.lock().failed.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State<O>> {
        // If a worker panicked while it held the lock, the worst result is an incomplete line,
        // which readers leave out.
        let state = self.state.lock();
        state.unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl<O: Out> Journal for FileJournal<O> {
    fn find(&self, comparison: &ComparisonKey, design: &str, seed: u64) -> Option<Sample> {
        let key = (comparison.clone(), design.to_owned(), seed);
        self.known.get(&key).cloned()
    }

    fn keep(&self, comparison: &ComparisonKey, design: &str, seed: u64, sample: &Sample) {
        if self.find(comparison, design, seed).is_some() {
            return;
        }
        let line = CaseLine::of(comparison, design, seed, sample);
        let mut line = serde_json::to_string(&line).expect("text and numbers always serialise");
        line.push('\n');
        let mut state = self.lock();
        if state.failed.is_some() {
            return;
        }
        match state.out.append(line.as_bytes()) {
            Ok(()) => state.length += line.len() as u64,
            Err(error) => {
                let length = state.length;
                // If cutting the file also fails, the incomplete line remains the last line.
                // Readers leave out this line.
                let _ = state.out.cut(length);
                let failed = format!("cannot write to {}: {error}", self.name.display());
                eprintln!("warning: {failed}; the cases that finish from now on are not kept");
                state.failed = Some(failed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::journal::Title;
    use crate::store::files;

    /// A file whose disk is full after `room` lines. Only a part of the next line is written.
    #[derive(Debug)]
    struct Full {
        file: File,
        room: usize,
        cuts: bool,
    }

    impl Out for Full {
        fn append(&mut self, line: &[u8]) -> io::Result<()> {
            if self.room == 0 {
                self.file.write_all(&line[..line.len() / 2])?;
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.room -= 1;
            self.file.write_all(line)
        }

        fn cut(&mut self, length: u64) -> io::Result<()> {
            if self.cuts {
                self.file.set_len(length)
            } else {
                Err(io::ErrorKind::StorageFull.into())
            }
        }
    }

    fn key() -> ComparisonKey {
        ComparisonKey {
            experiment: "selftest".to_owned(),
            title: Title {
                what: "selftest".to_owned(),
                machine: "no machine".to_owned(),
                about: "a \"quoted\" word".to_owned(),
            },
            nth: 1,
        }
    }

    fn sample(value: f64) -> Sample {
        let rate = Metric::higher("pages_per_s", Unit::PagesPerSecond);
        let size = Metric::neither("bytes", Unit::Bytes);
        Sample {
            hash: value.to_bits(),
            metrics: vec![(rate, value), (size, f64::INFINITY)],
        }
    }

    #[test]
    fn a_journal_that_fails_at_any_write_keeps_the_cases_before() {
        for room in 0..6 {
            for cuts in [true, false] {
                let folder = tempfile::tempdir().unwrap();
                let name = folder.path().join("cases.jsonl");
                let file = File::create(&name).unwrap();
                let out = Full { file, room, cuts };
                let journal = FileJournal::new(name.clone(), out, Vec::new(), 0);
                for seed in 1..=5 {
                    journal.keep(&key(), "ours", seed, &sample(0.1 * seed as f64));
                }
                assert_eq!(journal.failed().is_some(), room < 5);
                let (lines, length) = files::lines(&name).unwrap();
                assert_eq!(lines.len(), room.min(5), "cut: {cuts}");
                let file = File::options().append(true).open(&name).unwrap();
                file.set_len(length).unwrap();
                let again = FileJournal::new(name.clone(), file, lines, length);
                assert_eq!(again.known(), room.min(5));
                for seed in 1..=5 {
                    let of_seed = sample(0.1 * seed as f64);
                    let known = (seed <= room as u64).then(|| of_seed.clone());
                    assert_eq!(again.find(&key(), "ours", seed), known);
                    again.keep(&key(), "ours", seed, &of_seed);
                }
                let (lines, _) = files::lines::<CaseLine>(&name).unwrap();
                assert_eq!(lines.len(), 5, "the resumed run has added the others");
            }
        }
    }
}
