//! The points of a sweep. There is a plan for each combination of values of the axes.

use std::collections::BTreeSet;

use plimsoll_mm::tunables::Knob;
use rand::RngExt;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::data::{Axis, AxisValue, Draw, Plan, Sweep, Target, set_knob};
use super::prepare::prepare;
use super::read::Problem;
use super::section::join;
use super::text::factor_text;
use crate::error::Error;
use crate::run::aging::Memory;

/// The largest number of points (combinations of values) that one sweep can run.
pub const POINTS_MAX: u64 = 10_000;

/// One point of a sweep: one combination of the values of its axes.
#[derive(Clone, Debug)]
pub struct Point {
    /// The index of this point among the points that the sweep runs.
    pub nth: usize,
    /// The value, as text, that this point has on each axis of the sweep.
    pub values: Vec<String>,
    /// The plan with the values of this point. This plan has no sweep.
    pub plan: Plan,
}

impl Point {
    /// The point in words: the name of each axis, with its value at this point.
    #[must_use]
    pub fn title(&self, sweep: &Sweep) -> String {
        let pairs = sweep.axes.iter().zip(&self.values);
        let pairs = pairs.map(|(axis, value)| format!("{}={value}", axis.target.key()));
        pairs.collect::<Vec<_>>().join(", ")
    }
}

/// The number of points that `sweep` runs.
#[must_use]
pub fn count(sweep: &Sweep) -> u64 {
    let draw = sweep.random.map_or(u64::MAX, |draw| draw.points);
    grid(sweep).min(draw)
}

/// The number of all combinations of the axes' values. If this number does not fit into a `u64`,
/// the result is `u64::MAX`.
fn grid(sweep: &Sweep) -> u64 {
    let sizes = sweep.axes.iter().map(|axis| axis.values.len() as u64);
    sizes.fold(1, u64::saturating_mul)
}

/// The points (combinations of values) of the sweep of `plan`. From one point to the next, the last
/// axis changes fastest.
///
/// # Errors
/// Everything that is wrong with the plan, with a value of an axis, or with a combination of
/// values.
pub fn points(plan: &Plan, sweep: &Sweep) -> Result<Vec<Point>, Vec<Problem>> {
    let base = Plan {
        sweep: None,
        ..plan.clone()
    };
    prepare(&base)?;
    let problems = check(&base, sweep);
    if !problems.is_empty() {
        return Err(problems);
    }
    if count(sweep) > POINTS_MAX {
        let why = format!(
            "the grid has {} points, and at most {POINTS_MAX} can run: leave values out, or add \
             `random = 100`",
            grid(sweep)
        );
        return Err(vec![problem("sweep", Error::Invalid(why))]);
    }
    let points = chosen(sweep)
        .into_iter()
        .enumerate()
        .map(|of| point(&base, sweep, of));
    points.collect()
}

/// Makes the point at index `nth` of the sweep of `plan`. The function checks only this point, so
/// its running time does not grow with the number of points.
///
/// # Errors
/// If the sweep has no point `nth`. Otherwise, everything that is wrong with this point.
pub fn one(plan: &Plan, sweep: &Sweep, nth: usize) -> Result<Point, Vec<Problem>> {
    let base = Plan {
        sweep: None,
        ..plan.clone()
    };
    let all = if count(sweep) > POINTS_MAX {
        Vec::new()
    } else {
        chosen(sweep)
    };
    let Some(of_grid) = all.get(nth) else {
        let why = format!("the sweep has no point {nth}: it has {}", all.len());
        return Err(vec![problem("sweep", Error::Invalid(why))]);
    };
    point(&base, sweep, (nth, *of_grid))
}

fn problem(key: impl Into<String>, why: Error) -> Problem {
    Problem {
        key: key.into(),
        on_key: false,
        why,
    }
}

/// Checks the axes of `sweep`, and tries each of their values in the plan `base`, one at a time.
/// Returns what is wrong.
fn check(base: &Plan, sweep: &Sweep) -> Vec<Problem> {
    let mut problems = Vec::new();
    if !base.published.is_empty() {
        let why = "a sweep shows no published figures: leave out `published` or `sweep`";
        problems.push(problem("published", Error::Invalid(why.to_owned())));
    }
    for (nth, axis) in sweep.axes.iter().enumerate() {
        let key = join("sweep", &axis.target.key());
        if let Some(other) = sweep.axes[..nth]
            .iter()
            .find(|of| is_same(&of.target, &axis.target))
        {
            let why = format!(
                "`{}` changes the same setting: leave one out",
                other.target.key()
            );
            problems.push(problem(key.clone(), Error::Invalid(why)));
        }
        if let Some(design) = fixed_by(base, &axis.target) {
            let why = format!("`{design}` sets this knob itself, so the axis would not change it");
            problems.push(problem(key.clone(), Error::Invalid(why)));
        }
        for (nth, value) in axis.values.iter().enumerate() {
            let mut plan = base.clone();
            let applied = apply(&mut plan, &axis.target, value);
            let tried = applied.map_err(|why| vec![problem("", why)]);
            let tried = tried.and_then(|()| prepare(&plan).map(drop));
            let of_value = tried.err().into_iter().flatten().map(|of| Problem {
                key: if of.on_key {
                    key.clone()
                } else {
                    format!("{key}[{nth}]")
                },
                ..of
            });
            problems.extend(of_value);
        }
    }
    problems
}

/// Returns whether two axes change the same setting. This is also the case if one axis uses a
/// knob's name in Plimsoll, and the other axis uses its name in Linux.
fn is_same(one: &Target, other: &Target) -> bool {
    match (one, other) {
        (Target::Knob(one), Target::Knob(other)) => {
            Knob::named(one).is_some() && Knob::named(one) == Knob::named(other)
        }
        _ => one == other,
    }
}

/// If the axis `target` is a knob that a design sets itself, returns the label of this design. A
/// sweep over this knob would not change the knob's value in this design.
fn fixed_by<'p>(plan: &'p Plan, target: &Target) -> Option<&'p str> {
    let Target::Knob(name) = target else {
        return None;
    };
    let knob = Knob::named(name)?;
    let sets =
        |of: &&super::data::DesignOf| of.knobs.keys().any(|own| Knob::named(own) == Some(knob));
    plan.designs.iter().find(sets).map(|of| of.label.as_str())
}

/// Makes and checks the point at index `nth` of the sweep. Among all combinations of the axes'
/// values, the point has the index `of_grid`.
fn point(
    base: &Plan,
    sweep: &Sweep,
    (nth, mut of_grid): (usize, u64),
) -> Result<Point, Vec<Problem>> {
    let mut plan = base.clone();
    let mut values = Vec::new();
    for axis in sweep.axes.iter().rev() {
        let count = axis.values.len() as u64;
        let value = &axis.values[usize::try_from(of_grid % count).unwrap_or(0)];
        of_grid /= count;
        apply(&mut plan, &axis.target, value).map_err(|why| vec![problem("sweep", why)])?;
        values.push(match value {
            AxisValue::Whole(number) => number.to_string(),
            AxisValue::Percent(percent) => factor_text(*percent),
            AxisValue::Name(name) => name.clone(),
        });
    }
    values.reverse();
    let point = Point { nth, values, plan };
    let at = |of: Problem| {
        let why = format!("at {}: {}", point.title(sweep), of.why);
        problem("sweep", Error::Invalid(why))
    };
    let prepared = prepare(&point.plan).map(drop);
    prepared.map_err(|problems| problems.into_iter().map(at).collect::<Vec<_>>())?;
    Ok(point)
}

fn apply(plan: &mut Plan, target: &Target, value: &AxisValue) -> Result<(), Error> {
    match (target, value) {
        (Target::Machine, AxisValue::Name(name)) => plan.machines = vec![name.clone()],
        (Target::Memory, AxisValue::Name(name)) => plan.memory = Some(Memory::named(name)?),
        (Target::Card, AxisValue::Name(name)) => {
            let card = name.parse();
            plan.card = card.map_err(|why| Error::Invalid(format!("{why}")))?;
        }
        (Target::Workload(name), AxisValue::Whole(number)) => {
            plan.parameters.insert(name.clone(), *number);
        }
        (Target::Knob(name), AxisValue::Whole(number)) => {
            set_knob(&mut plan.knobs, name, *number);
        }
        (Target::Price(name), AxisValue::Percent(percent)) => {
            plan.prices.insert(name.clone(), *percent);
        }
        _ => return Err(Error::Invalid("the axis takes other values".to_owned())),
    }
    Ok(())
}

/// The indices of the points (combinations of values) to run, in ascending order.
fn chosen(sweep: &Sweep) -> Vec<u64> {
    let grid = grid(sweep);
    match sweep.random {
        Some(Draw { points, seed }) if points < grid => {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut drawn = BTreeSet::new();
            if points > grid / 2 {
                // Fewer points are left out than run, so draw the points to leave out.
                while (drawn.len() as u64) < grid - points {
                    drawn.insert(rng.random_range(0..grid));
                }
                return (0..grid).filter(|nth| !drawn.contains(nth)).collect();
            }
            while (drawn.len() as u64) < points {
                drawn.insert(rng.random_range(0..grid));
            }
            drawn.into_iter().collect()
        }
        _ => (0..grid).collect(),
    }
}

/// The axis that varies the machine, if the sweep has such an axis.
#[must_use]
pub fn machine_axis(sweep: &Sweep) -> Option<&Axis> {
    sweep
        .axes
        .iter()
        .find(|axis| axis.target == Target::Machine)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::command;

    fn plan() -> Plan {
        command::plan(
            "stress-vm",
            "laptop-2",
            &["linux", "ours"],
            &["vm.stat_interval=3"],
        )
        .unwrap()
    }

    fn axis(target: Target, values: &[u64]) -> Axis {
        let values = values
            .iter()
            .map(|value| AxisValue::Whole(*value))
            .collect();
        Axis { target, values }
    }

    fn interval_and_workers() -> Sweep {
        Sweep {
            axes: vec![
                axis(Target::Knob("stat_interval_ms".into()), &[500, 1000, 2000]),
                axis(Target::Workload("workers".into()), &[1, 2]),
            ],
            random: None,
        }
    }

    #[test]
    fn a_grid_has_every_combination_once_and_the_last_axis_changes_fastest() {
        let points = points(&plan(), &interval_and_workers()).unwrap();
        let values: Vec<String> = points.iter().map(|of| of.values.join(" ")).collect();
        assert_eq!(
            values,
            ["500 1", "500 2", "1000 1", "1000 2", "2000 1", "2000 2"]
        );
        assert_eq!(points[3].plan.parameters["workers"], 2);
        assert_eq!(points[3].plan.knobs.get("stat_interval_ms"), Some(&1000));
        assert_eq!(
            points[3].plan.knobs.len(),
            1,
            "the other name of the knob is gone"
        );
    }

    #[test]
    fn random_points_are_different_and_follow_from_the_seed() {
        let draw = |points, seed| {
            let random = Some(Draw { points, seed });
            chosen(&Sweep {
                random,
                ..interval_and_workers()
            })
        };
        for count in 1..=6 {
            let drawn = draw(count, 7);
            assert_eq!(drawn.len() as u64, count);
            assert!(drawn.windows(2).all(|pair| pair[0] < pair[1]) && drawn[drawn.len() - 1] < 6);
            assert_eq!(drawn, draw(count, 7));
        }
        assert_eq!(draw(100, 1).len(), 6, "the grid has no more");
        assert!((1..9).any(|seed| draw(2, seed) != draw(2, 1)));
    }

    #[test]
    fn a_wrong_value_is_a_problem_of_its_place_on_the_axis() {
        let sweep = Sweep {
            axes: vec![
                axis(Target::Knob("vm.stat_interval".into()), &[1, 0]),
                axis(Target::Knob("vm.stat_intervall".into()), &[1]),
            ],
            random: None,
        };
        let problems = points(&plan(), &sweep).unwrap_err();
        let keys: Vec<&str> = problems.iter().map(|of| of.key.as_str()).collect();
        assert_eq!(
            keys,
            [
                "sweep.\"knob:vm.stat_interval\"[1]",
                "sweep.\"knob:vm.stat_intervall\""
            ]
        );
    }

    #[test]
    fn an_axis_that_a_design_overrides_is_refused() {
        let designs = ["linux", "linux@vm.stat_interval=5"];
        let plan = command::plan("stress-vm", "laptop-2", &designs, &[]).unwrap();
        let problems = points(&plan, &interval_and_workers()).unwrap_err();
        assert!(
            problems[0]
                .why
                .to_string()
                .contains("sets this knob itself")
        );
    }

    #[test]
    fn a_grid_that_is_too_large_says_what_to_do() {
        let many: Vec<u64> = (1..=150).collect();
        let sweep = Sweep {
            axes: vec![
                axis(Target::Workload("workers".into()), &many),
                axis(Target::Workload("mib_per_worker".into()), &many),
            ],
            random: None,
        };
        let problems = points(&plan(), &sweep).unwrap_err();
        assert!(problems[0].why.to_string().contains("22500 points"));
    }
}
