//! The knobs of the memory manager, as a user names and sets them.
//!
//! A knob has a name in Plimsoll. If Linux also has the knob, it has a second name, which is its
//! name in Linux. If a user gives the name in Linux, the value has Linux's unit:
//! `vm.stat_interval=5` is `stat_interval_ms=5000`.

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
/// If `setting` does not have this form, or the value is not a whole number. If the value is not a
/// whole number and a knob with this name exists, the error says which values the knob takes. In
/// all other cases, the function does not check whether the knob exists.
pub fn parse(setting: &str) -> Result<(&str, u64), Error> {
    let malformed = || {
        Error::Invalid(format!(
            "`{setting}` sets no knob: write NAME=VALUE with a whole number, such as \
             vm.stat_interval=5"
        ))
    };
    let (name, text) = setting.split_once('=').ok_or_else(malformed)?;
    let value = text
        .parse()
        .map_err(|_| Knob::named(name).map_or_else(malformed, |knob| refused(knob, name, text)));
    Ok((name, value?))
}

/// Sets the knob `name`. If `name` is the knob's name in Linux, `value` has the unit of Linux.
///
/// # Errors
/// If no knob has this name, or the value is out of bounds.
pub fn set_value(tunables: &mut Tunables, name: &str, value: u64) -> Result<(), Error> {
    let Some((knob, converted)) = Knob::setting(name, value) else {
        let known = Knob::ALL.map(Knob::spec);
        let names: Vec<&str> = known
            .iter()
            .flat_map(|knob| [knob.name, knob.linux])
            .collect();
        return Err(Error::unknown("knob", name, &names));
    };
    let set = tunables.set(knob, converted);
    set.map_err(|_| refused(knob, name, &value.to_string()))
}

/// Returns the error for `text`, which is not a whole number within the bounds of the knob that the
/// user calls `name`. Returns `None` if no knob has this name.
pub(crate) fn refused_value(name: &str, text: &str) -> Option<Error> {
    Knob::named(name).map(|knob| refused(knob, name, text))
}

/// Returns the error for `text`, which is not an allowed value of `knob`. A knob has two names, its
/// own and its name in Linux, and `name` is one of them. The error states the bounds in the unit of
/// `name`. If the knob takes finer values under its own name, the error says so.
fn refused(knob: Knob, name: &str, text: &str) -> Error {
    let Spec {
        name: fine,
        linux_unit: (linux_unit, factor),
        unit,
        min,
        max,
        ..
    } = knob.spec();
    let bounds = |min: u64, max: u64| match knob {
        Knob::HighFraction => format!("0, or 8 to {max}"),
        _ => format!("{min} to {max}"),
    };
    if name == fine || factor == 1 {
        let bounds = bounds(min, max);
        return Error::Invalid(format!(
            "{name} cannot be {text} ({unit}): it takes whole numbers, {bounds}"
        ));
    }
    let coarse = bounds(min.div_ceil(factor), max / factor);
    let same = in_fine_unit(text, factor).filter(|value| (min..=max).contains(value));
    let instead = match same {
        Some(value) => format!("{fine}={value} ({unit}) is the same value"),
        None => format!("{fine} takes {} ({unit})", bounds(min, max)),
    };
    Error::Invalid(format!(
        "{name} cannot be {text} ({linux_unit}): it takes whole numbers, {coarse}; {instead}"
    ))
}

/// Returns the decimal number `text` times `factor`. Returns `None` if `text` is no decimal number,
/// or the product is not a whole number.
fn in_fine_unit(text: &str, factor: u64) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let is_digits = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_digits(whole) || !is_digits(part) {
        return None;
    }
    let part = part.trim_end_matches('0');
    let tens = 10_u64.checked_pow(u32::try_from(part.len()).ok()?)?;
    let digits: u64 = format!("{whole}{part}").parse().ok()?;
    let product = digits.checked_mul(factor)?;
    product.is_multiple_of(tens).then_some(product / tens)
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
        let no_knob = set_alone("vm.swappiness=0.5").unwrap_err();
        assert!(no_knob.contains("a whole number"), "{no_knob}");
        let slip = set_alone("vm.stat_intervall=1").unwrap_err();
        assert!(slip.contains("did you mean `vm.stat_interval`"), "{slip}");
    }

    #[test]
    fn bounds_have_the_name_and_the_unit_that_the_user_chose() {
        let refused = |setting| set_alone(setting).unwrap_err();
        assert_eq!(
            refused("vm.stat_interval=0"),
            "vm.stat_interval cannot be 0 (s): it takes whole numbers, 1 to 3600; \
             stat_interval_ms takes 1 to 3600000 (ms)"
        );
        assert_eq!(
            refused("stat_interval_ms=0"),
            "stat_interval_ms cannot be 0 (ms): it takes whole numbers, 1 to 3600000"
        );
        let huge = refused("vm.stat_interval=18446744073709551615");
        assert!(huge.contains("whole numbers, 1 to 3600;"), "{huge}");
        assert_eq!(
            refused("vm.percpu_pagelist_high_fraction=3"),
            "vm.percpu_pagelist_high_fraction cannot be 3 (1/n of a zone): it takes whole numbers, \
             0, or 8 to 4294967295"
        );
    }

    #[test]
    fn a_part_of_a_unit_is_offered_under_the_finer_name() {
        let refused = |setting| set_alone(setting).unwrap_err();
        assert_eq!(
            refused("vm.stat_interval=0.5"),
            "vm.stat_interval cannot be 0.5 (s): it takes whole numbers, 1 to 3600; \
             stat_interval_ms=500 (ms) is the same value"
        );
        let none_as_fine = refused("vm.stat_interval=0.0005");
        assert!(
            none_as_fine.ends_with("takes 1 to 3600000 (ms)"),
            "{none_as_fine}"
        );
        let not_a_number = refused("vm.stat_interval=half");
        assert!(
            not_a_number.contains("cannot be half (s)"),
            "{not_a_number}"
        );
        let fine = refused("stat_interval_ms=0.5");
        assert!(fine.contains("whole numbers, 1 to 3600000"), "{fine}");
        let offered = [
            ("0.5", Some(500)),
            ("1.250", Some(1250)),
            (".5", None),
            ("-1", None),
        ];
        for (text, value) in offered {
            assert_eq!(in_fine_unit(text, 1000), value, "{text}");
        }
        assert_eq!(in_fine_unit("99999999999999999999", 1000), None);
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
