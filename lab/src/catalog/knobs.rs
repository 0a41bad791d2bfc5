//! The knobs of the memory manager, as a user names and sets them.
//!
//! A knob has a name in Plimsoll and, if Linux has the knob, a name in Linux. If a user gives the
//! name in Linux, the value has Linux's unit: `vm.stat_interval=5` is `stat_interval_ms=5000`.

use plimsoll_mm::tunables::{Knob, Spec, Tunables};

use crate::error::Error;
use crate::report::{Table, tabulate};

/// A table of all knobs.
#[must_use]
pub fn list() -> Table {
    tabulate!(
        "Knobs",
        "`--set KNOB=VALUE` sets a knob in all designs, `DESIGN@KNOB=VALUE` in one. Both names of a \
         knob work. A value given with the name in Linux has the unit of Linux.",
        &Knob::ALL,
        |knob| {
            "knob" => knob.spec().name,
            "sets" => described(*knob),
        }
    )
}

fn described(knob: Knob) -> String {
    let Spec {
        linux,
        linux_unit,
        unit,
        default,
        min,
        max,
        ..
    } = knob.spec();
    let of_linux = match linux_unit {
        (_, 1) => linux.to_owned(),
        (unit, _) => format!("{linux}, in {unit}"),
    };
    format!(
        "{}. Unit: {unit}; default: {default}; {min} to {max}. Linux: {of_linux}",
        about(knob)
    )
}

/// Returns one line that says what the knob sets, for the list of knobs.
#[must_use]
pub const fn about(knob: Knob) -> &'static str {
    match knob {
        Knob::StatInterval => "the time between two runs of a CPU's vmstat work",
        Knob::BatchScaleMax => "the most batches that one refill, spill or decay moves",
        Knob::HighFraction => "the share of a zone that page lists may hold; 0: tuned",
        Knob::MinFree => "the memory kept free for urgent requests; 0: computed",
        Knob::WatermarkScale => "the distance between two watermarks",
        Knob::ReserveRatioDma => "the reserve of the DMA zone; 0: none",
        Knob::ReserveRatioDma32 => "the reserve of the DMA32 zone; 0: none",
        Knob::ReserveRatioNormal => "the reserve of the Normal zone; 0: none",
        Knob::HoldTimeMax => "the longest hold of a zone lock under `bounded`; 0: no limit",
    }
}

/// Splits `NAME=VALUE` into the name of a knob and its value.
///
/// # Errors
/// If `setting` does not have this form. Whether the knob exists is not checked.
pub fn parse(setting: &str) -> Result<(&str, u64), Error> {
    let malformed = || {
        Error::Invalid(format!(
            "`{setting}` sets no knob: write NAME=VALUE with a whole number, such as \
             vm.stat_interval=5"
        ))
    };
    let (name, value) = setting.split_once('=').ok_or_else(malformed)?;
    Ok((name, value.parse().map_err(|_| malformed())?))
}

/// Sets the knob `name`. If `name` is the knob's name in Linux, `value` has the unit of Linux.
///
/// # Errors
/// If no knob has this name, or the value is out of bounds.
pub fn set_value(tunables: &mut Tunables, name: &str, value: u64) -> Result<(), Error> {
    let Some((knob, value)) = Knob::setting(name, value) else {
        let known = Knob::ALL.map(Knob::spec);
        let names: Vec<&str> = known
            .iter()
            .flat_map(|knob| [knob.name, knob.linux])
            .collect();
        return Err(Error::unknown("knob", name, &names));
    };
    tunables
        .set(knob, value)
        .map_err(|refused| Error::Invalid(refused.to_string()))
}

/// Splits `DESIGN@NAME=VALUE,NAME=VALUE` into the design's name and the settings.
#[must_use]
pub fn split(text: &str) -> (&str, Vec<&str>) {
    match text.split_once('@') {
        Some((design, settings)) => (design, settings.split(',').collect()),
        None => (text, Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set_alone(setting: &str) -> Result<Tunables, String> {
        let mut tunables = Tunables::default();
        let set = parse(setting).and_then(|(name, value)| set_value(&mut tunables, name, value));
        set.map_err(|error| {
            assert!(error.is_bad_input());
            error.to_string()
        })?;
        Ok(tunables)
    }

    #[test]
    fn a_knob_has_two_names_and_each_its_unit() {
        for setting in ["vm.stat_interval=5", "stat_interval_ms=5000"] {
            let tunables = set_alone(setting).unwrap();
            assert_eq!(tunables.get(Knob::StatInterval), 5000);
        }
        let tunables = set_alone("vm.lowmem_reserve_ratio[1]=64").unwrap();
        assert_eq!(tunables.get(Knob::ReserveRatioDma32), 64);
        assert_eq!(tunables.get(Knob::ReserveRatioDma), 256);
    }

    #[test]
    fn a_wrong_setting_says_what_to_write() {
        let malformed = "`vm.stat_interval` sets no knob: write NAME=VALUE with a whole number, \
                         such as vm.stat_interval=5";
        assert_eq!(set_alone("vm.stat_interval").unwrap_err(), malformed);
        let half = set_alone("vm.stat_interval=half").unwrap_err();
        assert!(half.contains("a whole number"), "{half}");
        let slip = set_alone("vm.stat_intervall=1").unwrap_err();
        assert!(slip.contains("did you mean `vm.stat_interval`"), "{slip}");
        let bounds = "stat_interval_ms cannot be 0 (ms): it takes 1 to 3600000";
        assert_eq!(set_alone("vm.stat_interval=0").unwrap_err(), bounds);
        let huge = set_alone("vm.stat_interval=18446744073709551615").unwrap_err();
        assert!(huge.contains("it takes 1 to 3600000"), "{huge}");
    }

    #[test]
    fn a_design_may_have_settings() {
        assert_eq!(split("linux+phased"), ("linux+phased", vec![]));
        let (design, settings) = split("linux-6.18@vm.stat_interval=5,batch_scale_max=0");
        assert_eq!(design, "linux-6.18");
        assert_eq!(settings, ["vm.stat_interval=5", "batch_scale_max=0"]);
    }

    #[test]
    fn every_knob_is_listed() {
        assert_eq!(list().rows.len(), Knob::ALL.len());
    }
}
