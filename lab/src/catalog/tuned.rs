//! A design together with the values of its knobs.

use std::fmt;

use plimsoll_mm::tunables::Tunables;

use super::designs::{self, Named};
use super::knobs;
use crate::error::Error;

/// A design with a value for each knob.
#[derive(Clone, Debug)]
pub struct Tuned {
    /// The design, with its name and settings as the user wrote them.
    pub named: Named,
    /// The values of the knobs.
    pub tunables: Tunables,
}

impl fmt::Display for Tuned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.named.fmt(f)
    }
}

/// Finds the designs that `texts` name, each of the form `DESIGN` or `DESIGN@NAME=VALUE,...`. The
/// knobs that `settings` sets apply to all these designs; a design's own settings come after them.
/// The designs are to be compared, so no two may be the same design with the same values.
///
/// # Errors
/// The errors of [`designs::find`] and [`knobs::set`], and [`Error::Invalid`] if two texts mean the
/// same design with the same values.
pub fn find_different(texts: &[&str], settings: &[&str]) -> Result<Vec<Tuned>, Error> {
    let mut all: Vec<Tuned> = Vec::new();
    for text in texts {
        let tuned = find(text, settings)?;
        let is_same = |other: &&Tuned| {
            other.named.design.variants() == tuned.named.design.variants()
                && other.tunables == tuned.tunables
        };
        if let Some(other) = all.iter().find(is_same) {
            return Err(Error::Invalid(format!(
                "`{other}` and `{text}` are the same design: name two that differ"
            )));
        }
        all.push(tuned);
    }
    Ok(all)
}

fn find(text: &str, settings: &[&str]) -> Result<Tuned, Error> {
    let (design, own) = knobs::split(text);
    let mut tunables = Tunables::default();
    for setting in settings.iter().chain(&own) {
        knobs::set(&mut tunables, setting)?;
    }
    let named = Named {
        name: text.to_owned(),
        ..designs::find(design)?
    };
    Ok(Tuned { named, tunables })
}

#[cfg(test)]
mod tests {
    use plimsoll_mm::tunables::Knob;

    use super::*;

    #[test]
    fn one_design_with_two_values_is_two_designs() {
        let found = find_different(&["linux", "linux@vm.stat_interval=5"], &[]).unwrap();
        assert_eq!(found[0].tunables.get(Knob::StatInterval), 1000);
        assert_eq!(found[1].tunables.get(Knob::StatInterval), 5000);
        assert_eq!(found[1].to_string(), "linux@vm.stat_interval=5");
    }

    #[test]
    fn a_design_s_own_setting_replaces_that_of_all() {
        let settings = ["vm.stat_interval=2", "batch_scale_max=0"];
        let found = find_different(&["linux", "ours@vm.stat_interval=5"], &settings).unwrap();
        let values = |knob| [0, 1].map(|nth: usize| found[nth].tunables.get(knob));
        assert_eq!(values(Knob::StatInterval), [2000, 5000]);
        assert_eq!(values(Knob::BatchScaleMax), [0, 0]);
    }

    #[test]
    fn equal_values_make_equal_designs() {
        let error = find_different(&["linux", "linux@vm.stat_interval=1"], &[]);
        assert_eq!(
            error.expect_err("the default is 1 s").to_string(),
            "`linux` and `linux@vm.stat_interval=1` are the same design: name two that differ"
        );
        let empty = find_different(&["linux@"], &[]).expect_err("no setting follows");
        assert!(empty.is_bad_input());
    }
}
