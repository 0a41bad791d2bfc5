//! A part of a sweep. Several computers can share the points (combinations of values) of a sweep,
//! so that each runs one part.

use std::fmt;
use std::num::NonZeroUsize;
use std::str::FromStr;

use super::sweep::Point;
use crate::error::Error;

/// One of `of` parts of a sweep. The part has every `of`th point of the sweep, beginning with the
/// point `number`. So the runs of all parts take about equally long, even if some values of the
/// first axis make runs longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The number of this part. The first part has the number 1.
    number: NonZeroUsize,
    /// How many parts the sweep has.
    of: NonZeroUsize,
}

impl Part {
    /// The whole sweep.
    pub const WHOLE: Self = Self {
        number: NonZeroUsize::MIN,
        of: NonZeroUsize::MIN,
    };

    /// Makes the part that has only the point at index `nth` of a sweep with `points` points.
    /// Returns `None` if the sweep has no such point.
    #[must_use]
    pub fn of_point(nth: usize, points: usize) -> Option<Self> {
        let (number, of) = (NonZeroUsize::new(nth + 1)?, NonZeroUsize::new(points)?);
        (number <= of).then_some(Self { number, of })
    }

    /// Keeps only the points (combinations of values) of this part.
    pub fn retain(self, points: &mut Vec<Point>) {
        points.retain(|point| point.nth % self.of == self.number.get() - 1);
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

impl FromStr for Part {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let numbers = text.split_once('/');
        let numbers = numbers.and_then(|(k, n)| Some((k.parse().ok()?, n.parse().ok()?)));
        numbers
            .map(|(number, of)| Self { number, of })
            .filter(|part| part.number <= part.of)
            .ok_or_else(|| {
                let why = format!("`{text}` is no part: write K/N with K from 1 to N, such as 1/4");
                Error::Invalid(why)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;

    fn points(count: usize) -> Vec<Point> {
        let point = |nth| Point {
            nth,
            values: Vec::new(),
            plan: Plan::default(),
        };
        (0..count).map(point).collect()
    }

    #[test]
    fn each_point_is_in_exactly_one_part() {
        for of in 1..=9 {
            let mut seen = [0; 7];
            for number in 1..=of {
                let mut points = points(7);
                let part: Part = format!("{number}/{of}").parse().unwrap();
                part.retain(&mut points);
                points.iter().for_each(|point| seen[point.nth] += 1);
            }
            assert_eq!(seen, [1; 7], "{of} parts");
        }
    }

    #[test]
    fn a_part_can_be_one_point() {
        for nth in 0..7 {
            let mut points = points(7);
            Part::of_point(nth, 7).unwrap().retain(&mut points);
            assert_eq!(points.len(), 1);
            assert_eq!(points[0].nth, nth);
        }
        assert_eq!(Part::of_point(7, 7), None);
    }

    #[test]
    fn a_part_that_does_not_exist_says_what_to_write() {
        for wrong in ["", "1", "0/4", "5/4", "1/0", "a/b", "1/2/3"] {
            let error = wrong.parse::<Part>().unwrap_err();
            assert!(error.is_bad_input());
            assert!(error.to_string().contains("K/N"), "{error}");
        }
    }
}
