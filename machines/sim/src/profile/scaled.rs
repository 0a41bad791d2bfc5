//! Machine names with scaled prices: `grace-72+kasan@work.fault=200` is the machine
//! `grace-72+kasan` with the price `work.fault` at 200 percent.
//!
//! An experiment gets its machine by name. So, without a change of its code, every experiment can
//! run on a machine on which one price is different.

use super::error::{Problem, ProfileError, nearest};
use super::key::CostKey;

/// The largest factor for a price, in percent.
const PERCENT_MAX: u32 = 10_000;

/// A price, and its factor in percent.
type Scaled = (CostKey, u32);

/// Splits a name such as `laptop-2@work.fault=200@work.zap=50`: returns the name of the machine
/// and, for each `@`, the key of a price and its percentage.
pub(super) fn split(name: &str) -> Result<(&str, Vec<Scaled>), ProfileError> {
    let mut parts = name.split('@');
    let machine = parts.next().unwrap_or_default();
    let scaled = parts.map(|part| one(name, part)).collect::<Result<_, _>>();
    Ok((machine, scaled?))
}

fn one(name: &str, part: &str) -> Result<Scaled, ProfileError> {
    let bad = |key: &str, problem| ProfileError {
        file: name.to_owned(),
        line: None,
        key: Some(key.to_owned()),
        problem,
    };
    let (key, percent) = part.split_once('=').unwrap_or((part, ""));
    let known = CostKey::all().find(|known| known.to_string() == key);
    let known = known.ok_or_else(|| {
        let names: Vec<String> = CostKey::all().map(|known| known.to_string()).collect();
        bad(key, Problem::UnknownKey(nearest(key, &names)))
    })?;
    let percent: Option<u32> = percent.parse().ok();
    let within = percent.filter(|percent| (1..=PERCENT_MAX).contains(percent));
    let hint = format!("write its price in percent, 1 to {PERCENT_MAX}, as in {key}=200");
    Ok((
        known,
        within.ok_or_else(|| bad(key, Problem::Absurd(hint)))?,
    ))
}

#[cfg(test)]
mod tests {
    use plimsoll_mm::site::Work;

    use super::super::{Card, Profile};
    use super::*;

    #[test]
    fn a_scaled_name_changes_this_price_alone() {
        let plain = Profile::load("grace-72+kasan", Card::Mid).unwrap();
        let name = "grace-72+kasan@work.fault=200@word.own=50";
        let scaled = Profile::load(name, Card::Mid).unwrap();
        let expected = plain
            .with_scaled(CostKey::Work(Work::Fault), 200)
            .with_scaled(CostKey::WordOwn, 50);
        assert_eq!(scaled.costs, expected.costs);
        assert_ne!(scaled.costs, plain.costs);
        assert_eq!(scaled.name, name);
    }

    #[test]
    fn a_bad_price_or_percentage_says_what_to_write() {
        let error = |name| Profile::load(name, Card::Mid).unwrap_err().to_string();
        let slip = error("grace-72@work.fualt=200");
        assert!(slip.contains("did you mean work.fault"), "{slip}");
        for name in [
            "grace-72@work.fault",
            "grace-72@work.fault=0",
            "grace-72@word.own=10001",
        ] {
            let text = error(name);
            assert!(text.contains("in percent, 1 to 10000"), "{text}");
        }
        assert!(error("grace-27@work.fault=200").starts_with("unknown machine"));
    }
}
