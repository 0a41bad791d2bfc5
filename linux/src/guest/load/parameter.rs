//! The parameters of a load, which a user gives as `name=value`.

use std::collections::BTreeMap;
use std::fmt;

/// One parameter of a load.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// The parameter's name, left of the `=`.
    pub name: &'static str,
    /// The parameter's meaning and unit.
    pub about: &'static str,
    /// The allowed values, and the default.
    pub kind: Kind,
}

/// The allowed values of a parameter, and its default.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A whole number between two bounds, both included.
    Number {
        /// The value used if the user gives none.
        default: u64,
        /// The smallest allowed value.
        min: u64,
        /// The largest allowed value.
        max: u64,
    },
    /// One of a fixed set of words.
    Word {
        /// The allowed words; the first is the default.
        choices: &'static [&'static str],
    },
    /// Any text without blanks.
    Text {
        /// The value used if the user gives none.
        default: &'static str,
    },
}

impl Parameter {
    /// Makes a parameter that is a whole number in `range`, which includes both bounds.
    #[must_use]
    pub(crate) const fn number(
        name: &'static str,
        about: &'static str,
        default: u64,
        range: (u64, u64),
    ) -> Self {
        let (min, max) = range;
        let kind = Kind::Number { default, min, max };
        Self { name, about, kind }
    }

    /// Makes a parameter that is one of `choices`; the first is the default.
    #[must_use]
    pub(crate) const fn word(
        name: &'static str,
        about: &'static str,
        choices: &'static [&'static str],
    ) -> Self {
        let kind = Kind::Word { choices };
        Self { name, about, kind }
    }

    /// Makes a parameter that is any text without blanks.
    #[must_use]
    pub(crate) const fn text(
        name: &'static str,
        about: &'static str,
        default: &'static str,
    ) -> Self {
        let kind = Kind::Text { default };
        Self { name, about, kind }
    }

    /// Returns the value used if the user gives none.
    #[must_use]
    pub fn default(&self) -> String {
        match self.kind {
            Kind::Number { default, .. } => default.to_string(),
            Kind::Word { choices } => choices.first().copied().unwrap_or_default().to_owned(),
            Kind::Text { default } => default.to_owned(),
        }
    }

    fn check(&self, value: &str) -> Result<(), String> {
        match self.kind {
            Kind::Number { min, max, .. } => match value.parse::<u64>() {
                Ok(number) if (min..=max).contains(&number) => Ok(()),
                _ => Err(format!("a whole number from {min} to {max}")),
            },
            Kind::Word { choices } if choices.contains(&value) => Ok(()),
            Kind::Word { choices } => Err(format!("one of {}", choices.join(", "))),
            Kind::Text { .. } if value.contains(char::is_whitespace) => {
                Err("a text without blanks".to_owned())
            }
            Kind::Text { .. } => Ok(()),
        }
    }
}

/// The reason why a parameter of a load is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadParameter(pub(crate) String);

impl fmt::Display for BadParameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadParameter {}

/// The checked values of all parameters of a load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Values(BTreeMap<&'static str, String>);

impl Values {
    /// Parses `name=value` texts; parameters that are not named get their defaults.
    ///
    /// # Errors
    ///
    /// If a text has no `=`, a name is unknown or occurs twice, or a value is not allowed.
    pub fn parse(parameters: &[Parameter], texts: &[String]) -> Result<Self, BadParameter> {
        let mut said = BTreeMap::new();
        for text in texts {
            let Some((name, value)) = text.split_once('=') else {
                return Err(BadParameter(format!(
                    "`{text}` is not `name=value`; {}",
                    known(parameters)
                )));
            };
            let Some(parameter) = parameters.iter().find(|p| p.name == name) else {
                return Err(BadParameter(format!(
                    "it has no `{name}`; {}",
                    known(parameters)
                )));
            };
            parameter
                .check(value)
                .map_err(|needed| BadParameter(format!("`{text}`: {name} is {needed}")))?;
            if said.insert(parameter.name, value.to_owned()).is_some() {
                return Err(BadParameter(format!("`{name}` is there twice")));
            }
        }
        for parameter in parameters {
            said.entry(parameter.name)
                .or_insert_with(|| parameter.default());
        }
        Ok(Self(said))
    }

    /// Returns the value of the parameter with this name, which must be a number.
    ///
    /// # Panics
    ///
    /// If the load has no parameter of this name, or the parameter's value is not a number.
    #[must_use]
    pub(crate) fn number(&self, name: &str) -> u64 {
        let number = self.text(name).parse();
        number.expect("a number was checked when it was read")
    }

    /// Returns the value of the parameter with this name, which must be a number, as a `usize`. A
    /// larger number becomes `usize::MAX`.
    ///
    /// # Panics
    ///
    /// If the load has no parameter of this name, or the parameter's value is not a number.
    #[must_use]
    pub(crate) fn count(&self, name: &str) -> usize {
        usize::try_from(self.number(name)).unwrap_or(usize::MAX)
    }

    /// Returns the value of the parameter with this name.
    ///
    /// # Panics
    ///
    /// If the load has no parameter of this name.
    #[must_use]
    pub(crate) fn text(&self, name: &str) -> &str {
        let value = self.0.get(name);
        value.expect("a load asks for its own parameters")
    }
}

fn known(parameters: &[Parameter]) -> String {
    if parameters.is_empty() {
        return "it has no parameters".to_owned();
    }
    let names: Vec<&str> = parameters.iter().map(|p| p.name).collect();
    format!("it has {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: &[Parameter] = &[
        Parameter::number("rounds", "how often", 3, (1, 10)),
        Parameter::word("mode", "how", &["together", "in-turn"]),
        Parameter::text("sizes", "which", "1,2"),
    ];

    fn read(texts: &[&str]) -> Result<Values, String> {
        let texts: Vec<String> = texts.iter().map(|&text| text.to_owned()).collect();
        Values::parse(SOME, &texts).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_not_said_is_as_its_default() {
        let values = read(&["mode=in-turn"]).unwrap();
        assert_eq!(values.number("rounds"), 3);
        assert_eq!(values.text("mode"), "in-turn");
        assert_eq!(values.text("sizes"), "1,2");
    }

    #[test]
    fn what_is_not_allowed_is_refused_with_what_is() {
        let cases = [
            (
                &["rounds"][..],
                "`rounds` is not `name=value`; it has rounds, mode, sizes",
            ),
            (
                &["speed=3"],
                "it has no `speed`; it has rounds, mode, sizes",
            ),
            (
                &["rounds=11"],
                "`rounds=11`: rounds is a whole number from 1 to 10",
            ),
            (
                &["rounds=x"],
                "`rounds=x`: rounds is a whole number from 1 to 10",
            ),
            (
                &["mode=both"],
                "`mode=both`: mode is one of together, in-turn",
            ),
            (
                &["sizes=1 2"],
                "`sizes=1 2`: sizes is a text without blanks",
            ),
            (&["rounds=1", "rounds=2"], "`rounds` is there twice"),
        ];
        for (texts, expected) in cases {
            assert_eq!(read(texts).unwrap_err(), expected);
        }
    }
}
