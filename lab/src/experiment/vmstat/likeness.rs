//! The distance between measured ratios and published ratios.
//!
//! The distance of two ratios is the quotient of the larger and the smaller ratio. So a ratio is as
//! far from its double as from its half.

/// A measured ratio of two designs, and the published ratio of the same two designs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Beside {
    pub(super) measured: f64,
    pub(super) published: f64,
}

impl Beside {
    /// The larger of the two ratios divided by the smaller ratio. The result is at least 1. It is
    /// infinite if one of the ratios is zero or not finite.
    pub(super) fn times_apart(self) -> f64 {
        let quotient = self.measured / self.published;
        if quotient.is_finite() && quotient > 0.0 {
            quotient.max(1.0 / quotient)
        } else {
            f64::INFINITY
        }
    }

    /// Returns whether the measured ratio is between half and twice the published ratio.
    pub(super) fn is_within_two(self) -> bool {
        self.times_apart() <= 2.0
    }
}

/// The typical factor between measured and published ratios: the root mean square of the logarithms
/// of all [`Beside::times_apart`], converted back to a factor. It is 1 if the two ratios of every
/// pair are equal, and infinite if there is no pair.
pub(super) fn times_apart(pairs: &[Beside]) -> f64 {
    if pairs.is_empty() {
        return f64::INFINITY;
    }
    let square = |pair: &Beside| pair.times_apart().ln().powi(2);
    let mean = pairs.iter().map(square).sum::<f64>() / pairs.len() as f64;
    mean.sqrt().exp()
}

/// Returns the candidate whose ratios are nearest to the published ratios by [`times_apart`], and
/// its distance. A candidate is a name with its measured ratios. If several candidates are equally
/// near, the first of them is returned. `None` if no candidate is at a finite distance.
pub(super) fn nearest<'a>(
    candidates: impl IntoIterator<Item = (&'a str, Vec<Beside>)>,
) -> Option<(&'a str, f64)> {
    let measured = candidates.into_iter().map(|(name, pairs)| {
        let distance = times_apart(&pairs);
        (name, distance)
    });
    let finite = measured.filter(|(_, distance)| distance.is_finite());
    finite.min_by(|(_, one), (_, other)| one.total_cmp(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beside(measured: f64, published: f64) -> Beside {
        Beside {
            measured,
            published,
        }
    }

    #[test]
    fn half_and_twice_are_equally_far() {
        assert_eq!(beside(0.25, 0.5).times_apart(), 2.0);
        assert_eq!(beside(1.0, 0.5).times_apart(), 2.0);
        assert!(beside(1.0, 0.5).is_within_two());
        assert!(!beside(1.01, 0.5).is_within_two());
        assert!(!beside(0.249, 0.5).is_within_two());
        assert_eq!(beside(0.0, 0.5).times_apart(), f64::INFINITY);
        assert_eq!(beside(f64::INFINITY, 0.5).times_apart(), f64::INFINITY);
    }

    #[test]
    fn the_distance_is_the_root_mean_square_of_logarithms() {
        let pairs = [beside(1.0, 1.0), beside(4.0, 1.0)];
        // One measured ratio equals the published ratio, and one differs by a factor of 4: √(((ln
        // 1)² + (ln 4)²) / 2) = ln 4 / √2.
        let expected = (4_f64.ln() / 2_f64.sqrt()).exp();
        assert!((times_apart(&pairs) - expected).abs() < 1e-12);
        assert_eq!(times_apart(&[beside(3.0, 3.0)]), 1.0);
        assert_eq!(times_apart(&[]), f64::INFINITY);
    }

    /// The first candidate has two ratios of about half the published ratios. The second has one
    /// ratio that equals the published ratio, and one that is five times the published ratio. The
    /// first is nearer, although its differences are larger. A candidate with a ratio of zero is
    /// never the nearest.
    #[test]
    fn the_nearest_is_nearest_by_quotients_and_not_by_differences() {
        let published = [0.1, 1.0];
        let with = |measured: [f64; 2]| -> Vec<Beside> {
            let pairs = measured.into_iter().zip(published);
            pairs.map(|(ours, theirs)| beside(ours, theirs)).collect()
        };
        let candidates = || {
            [
                ("none", with([0.0, 1.0])),
                ("wide", with([0.5, 1.0])),
                ("low", with([0.05, 0.45])),
            ]
        };
        let (name, distance) = nearest(candidates()).expect("two are finite");
        assert_eq!(name, "low");
        assert!((2.0..2.3).contains(&distance), "{distance}");
        assert_eq!(nearest([("none", with([0.0, 1.0]))]), None);
        assert_eq!(nearest([("nothing", Vec::new())]), None);
        let twice = [("one", with([0.2, 2.0])), ("two", with([0.2, 2.0]))];
        assert_eq!(nearest(twice).expect("both").0, "one");
    }
}
