//! The whole numbers that an experiment file gives to a workload or to a design.

use std::collections::BTreeMap;
use std::fmt;

/// The declaration of a number, or of a list of numbers, that an experiment file must give. The
/// reader, the JSON Schema and the documentation use this declaration.
#[derive(Clone, Copy, Debug)]
pub struct Number {
    /// The key in the file. It ends in the unit of the value, unless the value is a plain count.
    pub name: &'static str,
    /// A description in one line.
    pub about: &'static str,
    /// True if the file gives a list.
    pub is_list: bool,
    /// The smallest value that an experiment file is allowed to give for this number.
    pub min: u64,
    /// The largest value that an experiment file is allowed to give for this number.
    pub max: u64,
}

impl Number {
    /// Declares a key of an experiment file whose value is one whole number from `min` to `max`.
    pub(in crate::experiment) const fn one(
        name: &'static str,
        (min, max): (u64, u64),
        about: &'static str,
    ) -> Self {
        Self {
            name,
            about,
            is_list: false,
            min,
            max,
        }
    }

    /// The declaration of a list of numbers from `min` to `max`.
    pub(in crate::experiment) const fn list(
        name: &'static str,
        (min, max): (u64, u64),
        about: &'static str,
    ) -> Self {
        Self {
            is_list: true,
            ..Self::one(name, (min, max), about)
        }
    }
}

/// The values of declared numbers. A declared number has one value, or is a list with any number of
/// values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::experiment) struct Numbers(BTreeMap<&'static str, Vec<u64>>);

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = |(name, values): (&&str, &Vec<u64>)| format!("{name} {}", listed(values));
        f.write_str(&self.0.iter().map(one).collect::<Vec<_>>().join(", "))
    }
}

fn listed(values: &[u64]) -> String {
    let values: Vec<String> = values.iter().map(u64::to_string).collect();
    values.join(" ")
}

impl Numbers {
    /// Describes a quick run, whose numbers are `self`. It uses only the first machine. The text
    /// also lists each number whose value differs from its value in `others`.
    pub(super) fn beside(&self, others: &Self) -> String {
        let mut changed = self.clone();
        changed
            .0
            .retain(|name, values| others.0.get(name) != Some(values));
        if changed.0.is_empty() {
            return "the first machine alone".to_owned();
        }
        format!("the first machine alone; {changed}")
    }

    /// Creates numbers with these names and values.
    #[cfg(test)]
    pub(in crate::experiment) fn of(numbers: &[(&'static str, &[u64])]) -> Self {
        let numbers = numbers.iter();
        Self(
            numbers
                .map(|(name, values)| (*name, values.to_vec()))
                .collect(),
        )
    }

    /// Gives `values` to the parameter `name`. They replace the parameter's earlier values.
    pub(in crate::experiment) fn set(&mut self, name: &'static str, values: Vec<u64>) {
        self.0.insert(name, values);
    }

    /// Returns whether the parameter `name` has a value.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The names of the numbers that have one value and not a list of values.
    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        let single = self.0.iter().filter(|(_, values)| values.len() == 1);
        single.map(|(name, _)| *name)
    }

    /// Replaces each `(name)` in the name of a metric by the value of the workload's parameter
    /// `name`. So one name in a file, such as `select_at_(most)_ns`, stands for a metric of the
    /// full run and a metric of the quick run.
    pub(super) fn fill(&self, metric: &str) -> String {
        let one = |text: String, (name, values): (&&str, &Vec<u64>)| match values[..] {
            [value] => text.replace(&format!("({name})"), &value.to_string()),
            _ => text,
        };
        self.0.iter().fold(metric.to_owned(), one)
    }

    /// The values of the list `name`.
    ///
    /// # Panics
    /// If the workload does not declare the list. (If a file lacks a declared list, the reader
    /// refuses the file.)
    pub(in crate::experiment) fn list(&self, name: &str) -> &[u64] {
        let values = self.0.get(name);
        values.unwrap_or_else(|| panic!("no number is declared as {name}"))
    }

    /// The value of the number that is called `name`.
    ///
    /// # Panics
    /// As [`Numbers::list`].
    pub(in crate::experiment) fn get(&self, name: &str) -> u64 {
        self.list(name)[0]
    }

    /// The value of the number that is called `name`, as the length of a list in memory.
    ///
    /// # Panics
    /// As [`Numbers::list`], and if this computer can have no list of this length.
    pub(in crate::experiment) fn count(&self, name: &str) -> usize {
        usize::try_from(self.get(name)).expect("a list that fits this computer")
    }

    /// The value of the number that is called `name`. The declared maximum of this number is below
    /// 2³².
    ///
    /// # Panics
    /// As [`Numbers::list`], and if the value is 2³² or more.
    pub(in crate::experiment) fn small(&self, name: &str) -> u32 {
        u32::try_from(self.get(name)).expect("its declared maximum is below 2³²")
    }
}
