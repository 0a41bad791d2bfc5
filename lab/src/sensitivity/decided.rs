//! Looks up which prices (the times of simulated steps) decide the headlines of a report, the
//! comparisons that people quote from it.

use super::headlines;
use super::kept::{Compared, Headline, Kept, Price, Varied, hash_of_prices, is_fitted};
use crate::error::Error;
use crate::report::value::ratio_of;
use crate::report::{Decided, DecidedHeadline, DecidingPrice};

/// Returns the prices that decide the headlines (the comparisons that people quote) of
/// `experiment`, for its report on `machine`. Returns `None` if the experiment has no headlines. If
/// the sensitivity table in the repository does not have the experiment, the note of the result
/// says so.
///
/// # Errors
/// If the sensitivity table cannot be read or names an unknown price, which tests prevent.
pub fn of(experiment: &str, machine: &str) -> Result<Option<Decided>, Error> {
    let kept = Kept::committed()?.experiments;
    let varied = kept
        .into_iter()
        .find(|other| other.experiment == experiment);
    match varied {
        Some(varied) => decided(&varied, machine).map(Some),
        None => Ok(unknown(experiment)),
    }
}

/// Makes a result that only says that the effect of prices on `experiment` has not been measured
/// yet. Returns `None` if `experiment` has no headlines (comparisons that people quote).
fn unknown(experiment: &str) -> Option<Decided> {
    let mut headlines = headlines::ALL.iter();
    headlines.find(|other| other.experiment == experiment)?;
    Some(Decided {
        note: format!("not known; `plimsoll sensitivity {experiment}` measures them"),
        seeds: 0,
        headlines: Vec::new(),
    })
}

fn decided(varied: &Varied, machine: &str) -> Result<Decided, Error> {
    let headline = |headline: &Headline| {
        let price = |price: &Price| {
            Ok(DecidingPrice {
                key: price.key.clone(),
                fitted: is_fitted(&varied.machine, &price.key)?,
                effect: effect(headline, price),
            })
        };
        let prices = headline.deciding().map(price);
        Ok(DecidedHeadline {
            a: headline.a.clone(),
            b: headline.b.clone(),
            metric: headline.metric.clone(),
            prices: prices.collect::<Result<_, Error>>()?,
            within_noise: headline.within_noise(),
        })
    };
    let headlines = varied.headlines.iter().map(headline);
    Ok(Decided {
        note: note(varied, machine)?,
        seeds: varied.seeds,
        headlines: headlines.collect::<Result<_, Error>>()?,
    })
}

fn note(varied: &Varied, machine: &str) -> Result<String, Error> {
    let mut notes = Vec::new();
    if varied.machine != machine {
        notes.push(format!("varied on {}, not on this machine", varied.machine));
    }
    if hash_of_prices(&varied.machine)? != varied.prices {
        notes.push(format!(
            "{} had other prices then: `plimsoll sensitivity {}` measures again",
            varied.machine, varied.experiment
        ));
    }
    Ok(notes.join("; "))
}

/// Describes how a headline changes at half and at twice the price: gives the new verdict or, if
/// the verdict does not change, the new ratio of the designs. Leaves out changes that are possibly
/// random differences between seeds.
fn effect(headline: &Headline, price: &Price) -> String {
    let both = [("halved", &price.half), ("doubled", &price.twice)];
    let of = |(when, at): (&str, &Compared)| {
        if !headline.is_beyond_noise(at) {
            return None;
        }
        if headline.flips(at) {
            return Some(format!("{when}: {}", short(&at.verdict)));
        }
        let moves = headline.changes(at);
        let ratio = at
            .ratio
            .map_or_else(|| "∞".to_owned(), |ratio| ratio_of(1.0, ratio));
        moves.then(|| format!("{when}: ratio {ratio}"))
    };
    let effects: Vec<String> = both.into_iter().filter_map(of).collect();
    effects.join(", ")
}

/// The verdict without the advice that follows it after a semicolon.
pub(super) fn short(verdict: &str) -> &str {
    verdict.split(';').next().unwrap_or(verdict)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn varied(prices: &str) -> Varied {
        let at = |ratio: f64, verdict: &str| Compared {
            ratio: Some(ratio),
            low: Some(ratio * 0.8),
            high: Some(ratio * 1.25),
            verdict: verdict.to_owned(),
        };
        Varied {
            experiment: "vmstat".to_owned(),
            machine: "grace-72".to_owned(),
            version: "0".to_owned(),
            prices: prices.to_owned(),
            hash: String::new(),
            seeds: 6,
            uncharged: Vec::new(),
            headlines: vec![Headline {
                a: "linux".to_owned(),
                b: "patch".to_owned(),
                metric: "waits".to_owned(),
                plain: at(0.4, "B is lower"),
                prices: vec![Price {
                    key: "work.buddy_free".to_owned(),
                    half: at(0.1, "B is lower"),
                    twice: at(0.9, "no difference seen; add seeds to look closer"),
                }],
            }],
        }
    }

    #[test]
    fn a_report_names_the_deciding_prices_and_their_effect() {
        let now = hash_of_prices("grace-72").unwrap();
        let found = decided(&varied(&now), "grace-72").unwrap();
        assert_eq!(found.note, "");
        let price = &found.headlines[0].prices[0];
        assert_eq!((&*price.key, price.fitted), ("work.buddy_free", false));
        assert_eq!(
            price.effect,
            "halved: ratio 0.100, doubled: no difference seen"
        );
    }

    /// On the machine whose prices were varied, the price `work.fault` is fitted to a published
    /// figure. On the machine of the report it is not.
    #[test]
    fn a_price_is_called_fitted_if_it_is_on_the_machine_that_was_varied() {
        let mut varied = varied(&hash_of_prices("epyc-9654-2s").unwrap());
        "epyc-9654-2s".clone_into(&mut varied.machine);
        "work.fault".clone_into(&mut varied.headlines[0].prices[0].key);
        assert!(!is_fitted("grace-72", "work.fault").unwrap());
        let found = decided(&varied, "grace-72").unwrap();
        assert!(found.headlines[0].prices[0].fitted);
    }

    #[test]
    fn an_effect_within_the_noise_is_left_out() {
        let now = hash_of_prices("grace-72").unwrap();
        let mut varied = varied(&now);
        let price = &mut varied.headlines[0].prices[0];
        (price.twice.low, price.twice.high) = (Some(0.3), Some(1.5));
        let found = decided(&varied, "grace-72").unwrap();
        let price = &found.headlines[0].prices[0];
        assert_eq!(price.effect, "halved: ratio 0.100");
    }

    #[test]
    fn an_experiment_that_was_not_varied_says_so_and_one_without_prices_says_nothing() {
        let note = unknown("drain")
            .map(|headline| headline.note)
            .expect("it has headlines");
        assert!(note.contains("`plimsoll sensitivity drain`"), "{note}");
        assert_eq!(unknown("selftest"), None);
    }

    #[test]
    fn a_table_of_other_prices_or_of_another_machine_says_so() {
        let now = hash_of_prices("grace-72").unwrap();
        let note = |prices, machine| decided(&varied(prices), machine).unwrap().note;
        assert_eq!(
            note(&now, "grace-72+kasan"),
            "varied on grace-72, not on this machine"
        );
        assert!(note("0", "grace-72").starts_with("grace-72 had other prices then"));
    }
}
