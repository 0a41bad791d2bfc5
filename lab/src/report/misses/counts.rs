//! How many of the published figures match, and how many of these matches prove something.

use std::borrow::Borrow;

use super::{Agreement, Basis, Beside, Place};

/// How many published figures match ours, do not match ours, are open, or are not measured (see
/// `Agreement`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The number of all figures.
    pub all: usize,
    /// How many of our measurements are compared with published figures. If several postings
    /// published the same figure, one measurement is compared with several figures.
    pub ours: usize,
    /// The number of published figures that match ours.
    pub matches: usize,
    /// The number of matches that prove nothing, because our figure depends on the published figure
    /// (see [`Basis`]).
    pub given: usize,
    /// The number of matching figures that would also match if the patch had no effect in our runs.
    pub without_effect: usize,
    /// The number of matching figures that are counted neither in `given` nor in `without_effect`.
    pub telling: usize,
    /// The number of matches in which the ratio matches, but at least one of our values does not
    /// match the published value.
    pub off: usize,
    /// The number of figures that do not match.
    pub misses: usize,
    /// The number of open figures. For such a figure, the published change is nearly zero. The
    /// interval of our change is too wide to say whether our change is nearly zero, too.
    pub open: usize,
    /// The number of figures for which nothing is measured.
    pub not_measured: usize,
}

impl Counts {
    /// Counts `figures`.
    pub fn of<B: Borrow<Beside>>(figures: &[B]) -> Self {
        let mut counts = Self::default();
        let mut places: Vec<&Place> = Vec::new();
        for figure in figures.iter().map(Borrow::borrow) {
            counts.all += 1;
            let measured = figure.place.iter().filter(|_| figure.ours.is_some());
            for place in measured {
                if !places.contains(&place) {
                    places.push(place);
                }
            }
            match figure.agreement() {
                Agreement::Match => counts.add_match(figure),
                Agreement::Miss => counts.misses += 1,
                Agreement::Open => counts.open += 1,
                Agreement::NotMeasured => counts.not_measured += 1,
            }
        }
        counts.ours = places.len();
        counts
    }

    /// Returns one sentence, which says how many figures match and where the user can find all
    /// figures.
    #[must_use]
    pub fn sentence(&self) -> String {
        format!(
            "Of {} published figures {} match ours, {} miss, {} are open and {} are not measured; \
             `--verbose` lists them, and docs/misses.md has the causes.",
            self.all, self.matches, self.misses, self.open, self.not_measured
        )
    }

    fn add_match(&mut self, figure: &Beside) {
        let is_given = figure.basis != Basis::Independent;
        let is_without_effect = figure.agreement_without_effect() == Some(Agreement::Match);
        self.matches += 1;
        self.given += usize::from(is_given);
        self.without_effect += usize::from(is_without_effect);
        self.telling += usize::from(!is_given && !is_without_effect);
        self.off += usize::from(figure.is_level_off());
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn each_figure_is_counted_once_and_each_measurement_of_ours_once() {
        // Three published figures of the sample are compared with one measurement: we measure the
        // same metric with the same two designs for all three.
        let counts = Counts::of(&sample());
        let expected = Counts {
            all: 5,
            ours: 2,
            matches: 1,
            given: 0,
            without_effect: 0,
            telling: 1,
            off: 1,
            misses: 2,
            open: 1,
            not_measured: 1,
        };
        assert_eq!(counts, expected);
        assert!(counts.sentence().starts_with(
            "Of 5 published figures 1 match ours, 2 miss, 1 are open and 1 are not measured;"
        ));
    }

    #[test]
    fn a_match_tells_nothing_if_it_is_fitted_or_needs_no_effect() {
        let mut figures = sample();
        figures[1].basis = Basis::Fitted;
        let ours = figures[2].ours.as_mut().expect("measured");
        ours.ratio.as_mut().expect("a ratio").median = 0.9;
        let counts = Counts::of(&figures);
        assert_eq!((counts.matches, counts.given), (2, 1));
        assert_eq!((counts.without_effect, counts.telling), (1, 0));
    }

    #[test]
    fn a_match_by_construction_is_given_as_well() {
        let mut figure = sample().remove(1);
        figure.basis = Basis::Construction;
        let counts = Counts::of(&[figure]);
        assert_eq!((counts.matches, counts.given, counts.telling), (1, 1, 0));
    }
}
