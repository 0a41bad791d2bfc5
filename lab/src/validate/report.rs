//! The tables of `plimsoll bench two-cpus`, with measured and predicted waits side by side.

use std::time::Duration;

use plimsoll_host::measure::{Pair, Price, Prices};

use super::{LOADS, LoadName, Real, Seen, Skip, measure, misses, profile, simulate};
use crate::error::Error;
use crate::report::Table;
use crate::run::progress::Progress;

/// Each load is measured twice, for this long each time. The second measurement shows whether the
/// computer's speed has changed.
const DURATION: Duration = Duration::from_millis(700);

const SEED: u64 = 1;

/// Measures every load, predicts its waits, and returns tables of the measured and predicted waits.
///
/// # Errors
/// If the built-in machine cannot be loaded. It is not an error if this computer cannot measure the
/// waits: the table then states the reason.
pub fn two_cpus(progress: &Progress) -> Result<Vec<Table>, Error> {
    progress.start("bench two-cpus");
    progress.expect(LOADS.len());
    let outcomes = LOADS.map(|load| {
        let pair = Pair::find().map_err(Skip::from);
        let outcome = pair.and_then(|pair| measure(pair, load, DURATION));
        progress.step();
        outcome
    });
    report(&outcomes)
}

/// Returns tables of the measurements in `outcomes` and of the predictions for them. The outcomes
/// must be in the order of [`LOADS`].
///
/// # Errors
/// If the built-in machine cannot be loaded.
pub fn report(outcomes: &[Result<Real, Skip>]) -> Result<Vec<Table>, Error> {
    let (mut prices, mut waits) = (Vec::new(), Vec::new());
    for (load, outcome) in LOADS.into_iter().zip(outcomes) {
        let name = LoadName(load).to_string();
        match outcome {
            Err(why) => waits.push(skipped(name, why)),
            Ok(real) => {
                prices.push(price_row(&name, &real.prices));
                let simulated = simulate(&profile(&real.prices)?, real, SEED);
                waits.push(row(name, real, &simulated));
            }
        }
    }
    let table = |title: &str, note: &str, columns: &[&str], rows| Table {
        title: title.to_owned(),
        note: note.to_owned(),
        columns: columns.iter().map(|&column| column.to_owned()).collect(),
        rows,
    };
    Ok(vec![
        table(
            "Prices measured before / between / after two measurements of each load, in ns",
            "Measured on loads of their own: a line to and fro, a saturated lock, a free lock. \
             One core: the two CPUs behave as threads of one core.",
            &[
                "load",
                "line",
                "hand-over",
                "entry, own",
                "entry, remote",
                "one core",
            ],
            prices,
        ),
        table(
            "Waits on two CPUs, in ns: real / simulated (off by)",
            "load: think / hold, in ns. Nothing here was used for calibration. Held to account: \
             contended to 5 points, p99 to 10 %; `verdict` names the misses.",
            &[
                "load",
                "contended %",
                "mean",
                "p50",
                "p90",
                "p99",
                "p99.9",
                "kept",
                "verdict",
            ],
            waits,
        ),
    ])
}

fn price_row(name: &str, [before, between, after]: &[Prices; 3]) -> Vec<String> {
    let pair = |of: fn(&Prices) -> Price| {
        let middles = [before, between, after].map(|prices| of(prices).middle_ns);
        format!("{:.0} / {:.0} / {:.0}", middles[0], middles[1], middles[2])
    };
    let one_core = if before.look_like_one_core() {
        "yes"
    } else {
        "no"
    };
    vec![
        name.to_owned(),
        pair(|spread| spread.transfer),
        pair(|spread| spread.handover),
        pair(|spread| spread.entry),
        pair(|spread| spread.remote),
        one_core.to_owned(),
    ]
}

fn row(name: String, real: &Real, simulated: &Seen) -> Vec<String> {
    let seen = real.seen();
    let (share, predicted) = (
        seen.contended_share * 100.0,
        simulated.contended_share * 100.0,
    );
    let mut row = vec![
        name,
        format!("{share:.1} / {predicted:.1} ({:+.1})", predicted - share),
        off(seen.mean_ns, simulated.mean_ns),
    ];
    let pairs = seen.quantiles_ns.into_iter().zip(simulated.quantiles_ns);
    row.extend(pairs.map(|(real, simulated)| off(real, simulated)));
    row.push(format!("{:.0} %", real.waits.kept_share * 100.0));
    let misses: Vec<String> = misses(&seen, simulated)
        .iter()
        .map(ToString::to_string)
        .collect();
    let misses = match real.is_sharp() {
        Err(why) if !misses.is_empty() => {
            vec![misses.join("; "), format!("not held to account: {why}")]
        }
        _ => misses,
    };
    row.push(if misses.is_empty() {
        "within".to_owned()
    } else {
        misses.join("; ")
    });
    row
}

fn off(real: f64, simulated: f64) -> String {
    let percent = (simulated / real.max(1.0) - 1.0) * 100.0;
    format!("{real:.0} / {simulated:.0} ({percent:+.0} %)")
}

fn skipped(name: String, why: &Skip) -> Vec<String> {
    let mut row = vec![name];
    row.resize(8, crate::report::value::NOTHING.to_owned());
    row.push(format!("skipped: {why}"));
    row
}
