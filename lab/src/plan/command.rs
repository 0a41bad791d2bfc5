//! The plan that the command line of `plimsoll compare` makes: one machine, and designs with knobs.

use plimsoll_mm::tunables::Tunables;

use super::data::{DesignOf, Knobs, Plan, set_knob};
use super::read::Problem;
use crate::catalog::knobs;
use crate::error::Error;

/// Makes the plan of a command line. Each of `designs` has the form `DESIGN` or
/// `DESIGN@KNOB=VALUE,...`. Each of `settings` has the form `KNOB=VALUE`, and sets a knob of all
/// designs. The function does not check whether the names exist.
///
/// # Errors
/// [`Error::Invalid`] if a knob is not set as `KNOB=VALUE`.
pub fn plan(
    workload: &str,
    machine: &str,
    designs: &[&str],
    settings: &[&str],
) -> Result<Plan, Error> {
    let design = |text: &&str| {
        let (design, own) = knobs::split(text);
        Ok(DesignOf {
            label: (*text).to_owned(),
            design: design.to_owned(),
            knobs: parse(&own)?,
        })
    };
    Ok(Plan {
        name: workload.to_owned(),
        machines: vec![machine.to_owned()],
        workload: workload.to_owned(),
        knobs: parse(settings)?,
        designs: designs.iter().map(design).collect::<Result<_, Error>>()?,
        ..Plan::default()
    })
}

/// Splits each `KNOB=VALUE` of `settings`. If a knob is set twice, the last value counts.
///
/// # Errors
/// [`Error::Invalid`] if a setting has another form.
pub fn parse(settings: &[&str]) -> Result<Knobs, Error> {
    let mut set = Knobs::new();
    for setting in settings {
        let (name, value) = knobs::parse(setting)?;
        set_knob(&mut set, name, value);
    }
    Ok(set)
}

/// Sets `settings`, each of which is `KNOB=VALUE`, in all designs of `plan`.
///
/// # Errors
/// [`Error`] if a setting has another form, the knob does not exist or the value is out of bounds.
pub fn set(plan: &mut Plan, settings: &[&str]) -> Result<(), Error> {
    for (name, value) in parse(settings)? {
        knobs::set_value(&mut Tunables::default(), &name, value)?;
        set_knob(&mut plan.knobs, &name, value);
    }
    Ok(())
}

/// Makes an error for a command line from the first of `problems`. A command line has no lines and
/// columns that a message could show.
#[must_use]
pub fn first(problems: Vec<Problem>) -> Error {
    let first = problems.into_iter().next();
    first.map_or_else(
        || Error::Invalid("the plan is wrong".to_owned()),
        |of| of.why,
    )
}
