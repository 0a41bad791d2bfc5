//! The tables of a sensitivity run.

use super::decided::short;
use super::kept::{Compared, Headline, Kept, MOVES, Price, Varied, is_fitted};
use super::measure::SCREEN;
use crate::error::Error;
use crate::report::value::ratio_of;
use crate::report::{Table, tabulate};

/// The table of a headline (a comparison that people quote) shows at least this many prices: those
/// that change the headline's ratio most.
const SHOWN: usize = 5;

/// Makes a table for each headline (a comparison that people quote) that some price changes. The
/// prices with the largest effect are at the top. Then follow a table of the headlines that no
/// price changes, and a table of the prices whose steps never occur in the experiments.
///
/// # Errors
/// If the result names an unknown price.
pub fn tables(kept: &Kept) -> Result<Vec<Table>, Error> {
    let headlines = || {
        let of = |varied| move |headline| (varied, headline);
        let all = kept.experiments.iter();
        all.flat_map(move |varied: &Varied| varied.headlines.iter().map(of(varied)))
    };
    let mut tables = Vec::new();
    for (varied, headline) in headlines().filter(|(_, headline)| !headline.prices.is_empty()) {
        tables.push(of_headline(varied, headline)?);
    }
    let still: Vec<_> = headlines()
        .filter(|(_, headline)| headline.prices.is_empty())
        .collect();
    if !still.is_empty() {
        tables.push(unmoved(&still));
    }
    tables.push(uncharged(kept));
    Ok(tables)
}

fn of_headline(varied: &Varied, headline: &Headline) -> Result<Table, Error> {
    let deciding = headline.deciding().count();
    let mut rows = Vec::new();
    let shown = |(nth, price): &(usize, &Price)| *nth < SHOWN || !mark(headline, price).is_empty();
    for (_, price) in headline.prices.iter().enumerate().filter(shown) {
        let fitted = is_fitted(&varied.machine, &price.key)?;
        rows.push((price, fitted));
    }
    let Headline { a, b, metric, .. } = headline;
    let title = format!(
        "{} on {}: {metric}, {b} over {a}: {}",
        varied.experiment,
        varied.machine,
        plain(headline)
    );
    let note = match (deciding, headline.within_noise()) {
        (0, 0) => {
            format!(
                "No price flips the verdict or changes the ratio by more than a factor of {MOVES}."
            )
        }
        (0, noisy) => {
            format!(
                "No single price decides. {noisy} flip the verdict or change the ratio, {NOISE}"
            )
        }
        (_, 0) => format!("{deciding} of the prices decide."),
        (_, noisy) => format!("{deciding} of the prices decide, and {noisy} more, {NOISE}"),
    };
    Ok(tabulate!(
        title,
        note,
        &rows,
        |(price, fitted)| {
            "price" => if *fitted { format!("{} (fitted)", price.key) } else { price.key.clone() },
            "moves" => moves(headline, price),
            "" => mark(headline, price),
            "at half" => cell(headline, &price.half),
            "at twice" => cell(headline, &price.twice),
        }
    ))
}

/// The end of a sentence about prices whose effect may be only noise. The sentence stands below a
/// table.
const NOISE: &str = "but only within the noise: the intervals overlap.";

/// The mark for a price in a headline's table. The mark says whether the price decides the
/// headline, or changes the headline by no more than the random differences between seeds.
fn mark(headline: &Headline, price: &Price) -> &'static str {
    if headline
        .deciding()
        .any(|decisive| decisive.key == price.key)
    {
        "decides"
    } else if price.any(|at| headline.changes(at)) {
        "noise"
    } else {
        ""
    }
}

fn moves(headline: &Headline, price: &Price) -> String {
    format!("{} times", ratio_of(1.0, headline.effect(price)))
}

/// A cell of a table: the ratio of design B to design A when one price is changed. If the change of
/// the price changes the verdict, the cell also has the new verdict.
fn cell(headline: &Headline, at: &Compared) -> String {
    if headline.flips(at) {
        format!("{} {}", ratio(at), short(&at.verdict))
    } else {
        ratio(at)
    }
}

/// The ratio of design B to design A in a headline comparison with unchanged prices, and the
/// verdict of that comparison.
fn plain(headline: &Headline) -> String {
    format!(
        "{} {}",
        ratio(&headline.plain),
        short(&headline.plain.verdict)
    )
}

fn ratio(at: &Compared) -> String {
    let number = |value: Option<f64>| ratio_of(1.0, value.unwrap_or(f64::INFINITY));
    format!(
        "{} [{}–{}]",
        number(at.ratio),
        number(at.low),
        number(at.high)
    )
}

fn unmoved(headlines: &[(&Varied, &Headline)]) -> Table {
    tabulate!(
        format!("Headlines that no price moves by more than {SCREEN} times on the first seed"),
        "",
        headlines,
        |(varied, headline)| {
            "experiment" => varied.experiment,
            "machine" => varied.machine,
            "metric" => headline.metric,
            "B over A" => format!("{} over {}", headline.b, headline.a),
            "with unchanged prices" => plain(headline),
        }
    )
}

fn uncharged(kept: &Kept) -> Table {
    tabulate!(
        "Prices that were not varied, because the workload never charges them",
        format!(
            "Of the other prices, those that move no headline by more than {SCREEN} times on the first \
             seed are left out."
        ),
        &kept.experiments,
        |varied| {
            "experiment" => varied.experiment,
            "seeds" => varied.seeds,
            "prices" => varied.uncharged.join(" "),
        }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ratio: f64, verdict: &str) -> Compared {
        Compared {
            ratio: Some(ratio),
            low: Some(ratio * 0.9),
            high: Some(ratio * 1.1),
            verdict: verdict.to_owned(),
        }
    }

    /// If fewer than [`SHOWN`] prices decide a headline, its table shows [`SHOWN`] prices. If more
    /// prices decide the headline, its table shows all of them.
    #[test]
    fn a_table_shows_every_price_that_decides() {
        for (deciding, rows) in [(2, SHOWN), (8, 8)] {
            let price = |nth: usize| Price {
                key: format!("work.{}", plimsoll_mm::site::Work::ALL[nth].name()),
                half: at(if nth < deciding { 0.1 } else { 0.39 }, "B is lower"),
                twice: at(0.4, "B is lower"),
            };
            let kept = Kept {
                experiments: vec![Varied {
                    experiment: "vmstat".to_owned(),
                    machine: "grace-72".to_owned(),
                    version: "0".to_owned(),
                    prices: "0".to_owned(),
                    hash: "0".to_owned(),
                    seeds: 6,
                    uncharged: Vec::new(),
                    headlines: vec![Headline {
                        a: "linux".to_owned(),
                        b: "patch".to_owned(),
                        metric: "waits".to_owned(),
                        plain: at(0.4, "B is lower"),
                        prices: (0..12).map(price).collect(),
                    }],
                }],
            };
            assert_eq!(tables(&kept).unwrap()[0].rows.len(), rows);
        }
    }

    #[test]
    fn a_headline_has_its_movers_and_one_without_movers_has_a_line() {
        let lower = "B is lower";
        let headline = |metric: &str, prices| Headline {
            a: "linux".to_owned(),
            b: "patch".to_owned(),
            metric: metric.to_owned(),
            plain: at(0.4, lower),
            prices,
        };
        let price = Price {
            key: "work.buddy_free".to_owned(),
            half: at(0.1, lower),
            twice: at(0.95, "no difference seen; add seeds to look closer"),
        };
        let kept = Kept {
            experiments: vec![Varied {
                experiment: "vmstat".to_owned(),
                machine: "grace-72".to_owned(),
                version: "0".to_owned(),
                prices: "0".to_owned(),
                hash: "0".to_owned(),
                seeds: 6,
                uncharged: vec!["work.swap_in".to_owned()],
                headlines: vec![headline("waits", vec![price]), headline("rate", Vec::new())],
            }],
        };
        insta::assert_snapshot!(crate::report::table::render_tables(
            &tables(&kept).unwrap(),
            120
        ));
    }
}
