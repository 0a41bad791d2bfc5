//! The result of a run: how many mutants were caught, and which mutants survived.

use std::collections::BTreeMap;
use std::fmt;

use super::judge::Fate;
use super::sample::Mutant;
use super::survivors::FILE;

/// The number of mutants of one group with each outcome.
#[derive(Clone, Debug, Default)]
struct Row {
    group: String,
    unviable: usize,
    caught: usize,
    /// The number of mutants that were caught because a test took too long.
    by_timeout: usize,
    accepted: usize,
    survived: usize,
}

impl Row {
    fn viable(&self) -> usize {
        self.caught + self.accepted + self.survived
    }
}

/// The results of all groups of mutants, and the survivors (mutants that no test caught) that
/// `xtask/survivors.toml` does not accept.
#[derive(Clone, Debug, Default)]
pub(crate) struct Score {
    rows: Vec<Row>,
    survivors: Vec<Mutant>,
}

impl Score {
    /// Counts the fates of the mutants of one group.
    pub(crate) fn add(
        &mut self,
        group: &str,
        fates: &[(&Mutant, &Fate)],
        accepted: &BTreeMap<String, String>,
    ) {
        let mut row = Row {
            group: group.to_owned(),
            ..Row::default()
        };
        for (mutant, fate) in fates {
            match fate {
                Fate::Caught(_) => row.caught += 1,
                Fate::TimedOut(_) => {
                    row.caught += 1;
                    row.by_timeout += 1;
                }
                Fate::Unviable => row.unviable += 1,
                Fate::Survived { .. } if accepted.contains_key(&mutant.key) => row.accepted += 1,
                Fate::Survived { .. } => {
                    row.survived += 1;
                    self.survivors.push((*mutant).clone());
                }
            }
        }
        self.rows.push(row);
    }

    /// Returns an error if a mutant survived that is not in the list of accepted survivors.
    pub(crate) fn verdict(&self) -> Result<(), String> {
        match self.survivors.len() {
            0 => Ok(()),
            count => Err(format!(
                "{count} mutants survived; write a test that notices, or list the mutant with the \
                 reason in {FILE}"
            )),
        }
    }

    fn total(&self) -> Row {
        let sum = |of: fn(&Row) -> usize| self.rows.iter().map(of).sum();
        Row {
            group: "all".to_owned(),
            unviable: sum(|row| row.unviable),
            caught: sum(|row| row.caught),
            by_timeout: sum(|row| row.by_timeout),
            accepted: sum(|row| row.accepted),
            survived: sum(|row| row.survived),
        }
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "group    unviable  viable  caught  by time-out  accepted  survived  caught of viable"
        )?;
        for row in self.rows.iter().chain([&self.total()]) {
            let share = match row.viable() {
                0 => "-".to_owned(),
                viable => format!("{:.1} %", 100.0 * row.caught as f64 / viable as f64),
            };
            writeln!(
                f,
                "{:<8} {:>8}  {:>6}  {:>6}  {:>11}  {:>8}  {:>8}  {share:>16}",
                row.group,
                row.unviable,
                row.viable(),
                row.caught,
                row.by_timeout,
                row.accepted,
                row.survived,
            )?;
        }
        for mutant in &self.survivors {
            writeln!(f, "survived: {}", mutant.name)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::named;
    use super::*;

    #[test]
    fn an_accepted_survivor_counts_as_viable_but_not_as_caught() {
        let mutants = named(&[
            "a.rs:1:1: one",
            "a.rs:2:1: two",
            "a.rs:3:1: three",
            "a.rs:4:1: four",
        ]);
        let fates = [
            Fate::Caught("sim a::b".to_owned()),
            Fate::Survived { tests: 3 },
            Fate::Unviable,
            Fate::TimedOut("sim a::b".to_owned()),
        ];
        let fates: Vec<(&Mutant, &Fate)> = mutants.iter().zip(&fates).collect();
        let accepted = BTreeMap::from([("a.rs: two".to_owned(), "It is equal.".to_owned())]);
        let mut score = Score::default();
        score.add("page", &fates, &accepted);
        assert_eq!(score.verdict(), Ok(()));
        let lines: Vec<String> = score.to_string().lines().map(str::to_owned).collect();
        assert_eq!(
            lines[1],
            "page            1       3       2            1         1         0            66.7 %"
        );
        assert_eq!(lines.len(), 3);
    }

    #[test]
    fn a_survivor_without_a_reason_fails() {
        let mutants = named(&["a.rs:1:1: one"]);
        let mut score = Score::default();
        let survived = Fate::Survived { tests: 0 };
        score.add("page", &[(&mutants[0], &survived)], &BTreeMap::new());
        assert!(score.to_string().ends_with("survived: a.rs:1:1: one\n"));
        let error = score.verdict().expect_err("one survived");
        assert!(error.contains("write a test"), "{error}");
    }
}
