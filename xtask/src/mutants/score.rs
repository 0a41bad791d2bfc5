//! The result: how many mutants were caught, and which survived.

use std::collections::BTreeMap;
use std::fmt;

use super::sample::Mutant;
use super::survivors::FILE;
use super::tool::Fate;

/// Numbers of mutants of one group, by outcome.
#[derive(Clone, Debug, Default)]
struct Row {
    group: String,
    unviable: usize,
    caught: usize,
    accepted: usize,
    survived: usize,
    /// Mutants that were chosen, but for which the tool reports no outcome.
    untried: usize,
}

impl Row {
    fn viable(&self) -> usize {
        self.caught + self.accepted + self.survived
    }
}

/// The results of all groups, and the survivors that `xtask/survivors.toml` does not accept.
#[derive(Clone, Debug, Default)]
pub(crate) struct Score {
    rows: Vec<Row>,
    survivors: Vec<Mutant>,
}

impl Score {
    /// Counts the outcomes of `mutants`, all of which belong to `group`.
    pub(crate) fn add(
        &mut self,
        group: &str,
        mutants: &[&Mutant],
        fates: &[(String, Fate)],
        accepted: &BTreeMap<String, String>,
    ) {
        let fates: BTreeMap<&str, Fate> = fates
            .iter()
            .map(|(name, fate)| (name.as_str(), *fate))
            .collect();
        let mut row = Row {
            group: group.to_owned(),
            ..Row::default()
        };
        for mutant in mutants {
            match fates.get(mutant.name.as_str()) {
                Some(Fate::Caught) => row.caught += 1,
                Some(Fate::Unviable) => row.unviable += 1,
                Some(Fate::Survived) if accepted.contains_key(&mutant.key) => row.accepted += 1,
                Some(Fate::Survived) => {
                    row.survived += 1;
                    self.survivors.push((*mutant).clone());
                }
                None => row.untried += 1,
            }
        }
        self.rows.push(row);
    }

    /// Returns an error if a mutant survived that is not accepted, or was not tried.
    pub(crate) fn verdict(&self) -> Result<(), String> {
        let untried: usize = self.rows.iter().map(|row| row.untried).sum();
        if untried > 0 {
            return Err(format!("{untried} mutants were not tried"));
        }
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
            accepted: sum(|row| row.accepted),
            survived: sum(|row| row.survived),
            untried: sum(|row| row.untried),
        }
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "group    unviable  viable  caught  accepted  survived  caught of viable"
        )?;
        for row in self.rows.iter().chain([&self.total()]) {
            let share = match row.viable() {
                0 => "-".to_owned(),
                viable => format!("{:.1} %", 100.0 * row.caught as f64 / viable as f64),
            };
            writeln!(
                f,
                "{:<8} {:>8}  {:>6}  {:>6}  {:>8}  {:>8}  {share:>16}",
                row.group,
                row.unviable,
                row.viable(),
                row.caught,
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
    use super::super::sample::with_keys;
    use super::*;

    #[test]
    fn an_accepted_survivor_counts_as_viable_but_not_as_caught() {
        let mutants = with_keys(&["a.rs:1:1: one", "a.rs:2:1: two", "a.rs:3:1: three"]);
        let mutants: Vec<&Mutant> = mutants.iter().collect();
        let fates = [
            ("a.rs:1:1: one".to_owned(), Fate::Caught),
            ("a.rs:2:1: two".to_owned(), Fate::Survived),
            ("a.rs:3:1: three".to_owned(), Fate::Unviable),
        ];
        let accepted = BTreeMap::from([("a.rs: two".to_owned(), "It is equal.".to_owned())]);
        let mut score = Score::default();
        score.add("page", &mutants, &fates, &accepted);
        assert_eq!(score.verdict(), Ok(()));
        let lines: Vec<String> = score.to_string().lines().map(str::to_owned).collect();
        assert_eq!(
            lines[1],
            "page            1       2       1         1         0            50.0 %"
        );
        assert_eq!(lines.len(), 3);
    }

    #[test]
    fn a_survivor_without_a_reason_and_a_mutant_without_an_outcome_fail() {
        let mutants = with_keys(&["a.rs:1:1: one"]);
        let mutants: Vec<&Mutant> = mutants.iter().collect();
        let none = BTreeMap::new();
        let mut score = Score::default();
        let survived = [("a.rs:1:1: one".to_owned(), Fate::Survived)];
        score.add("page", &mutants, &survived, &none);
        assert!(score.to_string().ends_with("survived: a.rs:1:1: one\n"));
        let error = score.verdict().expect_err("one survived");
        assert!(error.contains("write a test"), "{error}");
        let mut score = Score::default();
        score.add("page", &mutants, &[], &none);
        let error = score.verdict().expect_err("one was not tried");
        assert!(error.contains("not tried"), "{error}");
    }
}
