//! The events of a track (a row in the viewer) before they are encoded: slices, which last some
//! time and can lie inside one another, and single events.

use std::cmp::Reverse;
use std::io;

/// The slice or single event of a run from which an event of the trace is made. The number in a
/// variant is an index into a list of [`Slices`](crate::slices::Slices).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Run(u32),
    /// A task was preempted. This is a single event at the end of the time in which the task ran.
    Preempted,
    Disturbed(u32),
    Held(u32),
    Waited(u32),
    /// A single event at the release of a lock: the waiter whose wait has this index in `waits` got
    /// the lock.
    Released(u32),
    Phase(u32),
    Mark(u32),
}

/// A slice on a track (a row in the viewer). If it ends where it begins, it is a single event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slice {
    pub(super) from: u64,
    pub(super) until: u64,
    pub(super) what: What,
}

/// The beginning or the end of a slice, or a single event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edge {
    Begin(What),
    End,
    Instant(What),
}

/// Turns the slices of one track into edges, and passes each edge with its time to `put`, in order
/// of time. If a slice would end after the slice around it, the slice is shortened. Returns how
/// many slices were shortened.
///
/// # Errors
/// If `put` fails.
pub(super) fn edges(
    mut slices: Vec<Slice>,
    mut put: impl FnMut(u64, Edge) -> io::Result<()>,
) -> io::Result<usize> {
    // Among events that begin at the same time, single events come first. The slices follow, the
    // longest first.
    let rank = |slice: &Slice| {
        let is_single = slice.from == slice.until;
        (slice.from, !is_single, Reverse(slice.until))
    };
    slices.sort_by_key(rank);
    let (mut open, mut shortened) = (vec![], 0);
    for slice in slices {
        let is_single = slice.from == slice.until;
        // If an event without duration happens just when the slice around it ends, the event still
        // belongs to this slice.
        let has_ended = |end: u64| end < slice.from || (end == slice.from && !is_single);
        while let Some(end) = open.pop_if(|end| has_ended(*end)) {
            put(end, Edge::End)?;
        }
        if is_single {
            put(slice.from, Edge::Instant(slice.what))?;
            continue;
        }
        let around = open.last().copied().unwrap_or(u64::MAX);
        shortened += usize::from(slice.until > around);
        open.push(slice.until.min(around));
        put(slice.from, Edge::Begin(slice.what))?;
    }
    while let Some(end) = open.pop() {
        put(end, Edge::End)?;
    }
    Ok(shortened)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn slice(from: u64, until: u64) -> Slice {
        let what = What::Run(u32::try_from(until).expect("small"));
        Slice { from, until, what }
    }

    /// The edges of slices that begin and end at these times, and how many were shortened.
    fn edges_of(slices: impl Iterator<Item = (u64, u64)>) -> (Vec<(u64, Edge)>, usize) {
        let slices = slices.map(|(from, until)| slice(from, until)).collect();
        let mut all = Vec::new();
        let shortened = edges(slices, |at, edge| {
            all.push((at, edge));
            Ok(())
        });
        (all, shortened.expect("a list takes them"))
    }

    fn text(slices: &[(u64, u64)]) -> (String, usize) {
        let (edges, shortened) = edges_of(slices.iter().copied());
        let edge = |(at, edge): &(u64, Edge)| match edge {
            Edge::Begin(What::Run(until)) => format!("{at}({until}"),
            Edge::End => format!("{at})"),
            _ => format!("{at}!"),
        };
        let edges: Vec<String> = edges.iter().map(edge).collect();
        (edges.join(" "), shortened)
    }

    #[test]
    fn slices_nest() {
        let (edges, shortened) = text(&[(3, 5), (0, 9), (5, 6), (9, 12)]);
        assert_eq!(edges, "0(9 3(5 5) 5(6 6) 9) 9(12 12)");
        assert_eq!(shortened, 0);
    }

    #[test]
    fn a_single_event_at_the_end_of_a_slice_is_its_last() {
        let (edges, _) = text(&[(0, 5), (5, 5), (5, 7)]);
        assert_eq!(edges, "0(5 5! 5) 5(7 7)");
    }

    #[test]
    fn a_slice_that_crosses_another_s_end_is_shortened() {
        assert_eq!(text(&[(0, 5), (3, 8)]), ("0(5 3(8 5) 5)".to_owned(), 1));
    }

    proptest! {
        /// For any slices, the edges (the begins and ends of slices) are in order of time, and each
        /// slice that begins also ends.
        #[test]
        fn edges_are_in_order_and_balanced(slices in prop::collection::vec((0..50_u64, 0..20_u64), 0..30)) {
            let slices = slices.iter().map(|(from, length)| (*from, from + length));
            let (edges, _) = edges_of(slices);
            prop_assert!(edges.is_sorted_by_key(|(at, _)| *at));
            let mut depth = 0;
            for (_, edge) in &edges {
                match edge {
                    Edge::Begin(_) => depth += 1,
                    Edge::End => depth -= 1,
                    Edge::Instant(_) => {}
                }
                prop_assert!(depth >= 0);
            }
            prop_assert_eq!(depth, 0);
        }
    }
}
