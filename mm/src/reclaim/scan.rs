//! Computes how many pages of each list a pass of reclaim looks at. This is pure arithmetic, and
//! follows Linux (`get_scan_count`, `inactive_is_low`).

use crate::space::lru::Kind;

/// The priority of the first pass, which looks at the smallest part of the lists: a 4096th (Linux:
/// `DEF_PRIORITY`).
pub(super) const PRIORITY_FIRST: u32 = 12;

/// The number of pages that a direct reclaim asks for. Reclaim also looks at this number of pages
/// in one batch (Linux: `SWAP_CLUSTER_MAX`).
pub(super) const CLUSTER: u64 = 32;

/// The number of pages of 4 KiB in a GiB.
const GIB: u64 = 1 << 18;

/// Returns whether the inactive list is too short, so that active pages have to become inactive.
///
/// The more pages the two lists have together, the smaller is the part of these pages that has to
/// be inactive: half if the lists have less than 1 GiB, a quarter for 1 GiB, an eleventh for 10
/// GiB, a thirty-second for 100 GiB.
pub(super) const fn inactive_is_low(inactive: u64, active: u64) -> bool {
    let gib = (inactive + active) / GIB;
    let ratio = if gib > 0 { (10 * gib).isqrt() } else { 1 };
    inactive * ratio < active
}

/// The weight of anonymous pages when reclaim divides its work between the kinds of pages; pages of
/// files have the weight `200 - SWAPPINESS` (Linux: the initial value of `vm.swappiness`).
const SWAPPINESS: u64 = 60;

/// One number for each list of a node: the length of the list, or how many of its pages a pass
/// looks at. The arrays are indexed by [`Kind`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PerList {
    /// For each kind of pages: the length of the inactive list, or how many pages of this list a
    /// pass looks at.
    pub(super) inactive: [u64; 2],
    /// For each kind of pages: the length of the active list, or how many pages of this list a pass
    /// looks at.
    pub(super) active: [u64; 2],
}

impl PerList {
    pub(super) const fn of(&self, kind: Kind) -> u64 {
        self.inactive[kind as usize] + self.active[kind as usize]
    }
}

/// The state of a node, from which a pass decides how many anonymous pages and how many pages of
/// files it looks at.
#[derive(Clone, Copy, Debug)]
pub(super) struct State {
    pub(super) len: PerList,
    /// For each kind of pages, whether active pages may become inactive.
    pub(super) may_deactivate: [bool; 2],
    /// For each kind of pages, the recent cost of reclaiming them.
    pub(super) cost: [u64; 2],
    /// True if a slot of swap is free.
    pub(super) can_swap: bool,
    /// The number of free pages of the node.
    pub(super) free: u64,
    /// The sum of the high watermarks of the node's zones.
    pub(super) high: u64,
}

/// Whether a pass looks at anonymous pages, at pages of files, or at both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Share {
    Only(Kind),
    /// The pass looks at the same fraction of the lists of both kinds.
    Equal,
    /// The pass looks at a smaller fraction of the lists of the kind that has recently cost more to
    /// reclaim.
    ByCost,
}

/// Returns how many pages of each list a pass of this `priority` looks at (Linux:
/// `get_scan_count`).
pub(super) fn counts(state: &State, priority: u32) -> PerList {
    let (a, f) = (Kind::Anon as usize, Kind::File as usize);
    let share = share(state, priority);
    // As in Linux, the pass looks at fewer pages of the kind whose reclaim has cost more.
    let total = state.cost[a] + state.cost[f];
    let (anon, file) = (total + state.cost[a], total + state.cost[f]);
    let all = anon + file;
    let by_anon = SWAPPINESS * (all + 1) / (anon + 1);
    let by_file = (200 - SWAPPINESS) * (all + 1) / (file + 1);
    let of = |list: u64, kind: Kind| {
        let part = list >> priority;
        match share {
            Share::Only(only) if only != kind => 0,
            Share::Only(_) | Share::Equal => part,
            Share::ByCost => {
                let by = if kind == Kind::Anon { by_anon } else { by_file };
                part * by / (by_anon + by_file)
            }
        }
    };
    let both = |lists: [u64; 2]| [of(lists[a], Kind::Anon), of(lists[f], Kind::File)];
    PerList {
        inactive: both(state.len.inactive),
        active: both(state.len.active),
    }
}

/// Called when a pass has reclaimed enough: decides how many pages of each list the pass still
/// looks at. The pass stops looking at the kind of pages for which `left` is smaller. It goes on
/// with the other kind until it has looked at the same fraction of the planned pages. Returns false
/// if the pass is over.
pub(super) fn keep_proportion(planned: &PerList, left: &mut PerList) -> bool {
    let [anon, file] = Kind::ALL.map(|kind| left.of(kind));
    if anon == 0 || file == 0 {
        return false;
    }
    let (fewer, more) = if file > anon {
        (Kind::Anon, Kind::File)
    } else {
        (Kind::File, Kind::Anon)
    };
    let percent = left.of(fewer) * 100 / (planned.of(fewer) + 1);
    let (f, m) = (fewer as usize, more as usize);
    (left.inactive[f], left.active[f]) = (0, 0);
    let rest = |planned: u64, left: u64| {
        let looked_at = planned - left;
        (planned * (100 - percent.min(100)) / 100).saturating_sub(looked_at)
    };
    left.inactive[m] = rest(planned.inactive[m], left.inactive[m]);
    left.active[m] = rest(planned.active[m], left.active[m]);
    true
}

fn share(state: &State, priority: u32) -> Share {
    let (a, f) = (Kind::Anon as usize, Kind::File as usize);
    let len = &state.len;
    if !state.can_swap {
        return Share::Only(Kind::File);
    }
    if priority == 0 {
        return Share::Equal;
    }
    // All pages of files and all free pages together do not exceed the high watermark, so
    // reclaiming only pages of files could not free enough.
    let file_is_tiny = len.of(Kind::File) + state.free <= state.high;
    if file_is_tiny && !state.may_deactivate[a] && len.inactive[a] >> priority > 0 {
        return Share::Only(Kind::Anon);
    }
    // There are enough inactive file pages. And reclaim has not dropped file pages that processes
    // soon read again. So anonymous pages can stay.
    if len.inactive[f] >> priority > 0 && !state.may_deactivate[f] {
        return Share::Only(Kind::File);
    }
    Share::ByCost
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_larger_memory_needs_a_smaller_inactive_part() {
        assert!(inactive_is_low(99, 100) && !inactive_is_low(100, 100));
        // At 10 GiB in total, √(10 × 10) = 10 active pages are allowed for each inactive page.
        let active = 9 * GIB;
        assert!(!inactive_is_low(GIB, active));
        assert!(inactive_is_low(GIB - 1, 10 * GIB));
        // At 100 GiB in total, 31 active pages are allowed for each inactive page: √(10 × 100),
        // rounded down.
        assert!(inactive_is_low(3 * GIB, 97 * GIB));
        assert!(!inactive_is_low(4 * GIB, 96 * GIB));
        assert!(!inactive_is_low(0, 0));
    }

    const PLENTY: State = State {
        len: PerList {
            inactive: [4096, 8192],
            active: [8192, 4096],
        },
        may_deactivate: [true, true],
        cost: [0, 0],
        can_swap: true,
        free: 100,
        high: 200,
    };

    #[test]
    fn a_short_list_is_first_looked_at_in_a_later_pass() {
        let first = |len: u64| {
            let mut state = PLENTY;
            state.can_swap = false;
            state.len.inactive[1] = len;
            let at = |&at: &u32| counts(&state, at).inactive[1] > 0;
            (0..=PRIORITY_FIRST).rev().find(at)
        };
        assert_eq!(first(4096), Some(12));
        assert_eq!(first(4095), Some(11));
        assert_eq!(first(1), Some(0));
        assert_eq!(first(0), None);
    }

    #[test]
    fn without_costs_files_get_140_parts_of_200() {
        let counts = counts(&PLENTY, 2);
        // A pass of priority 2 looks at a quarter of each list. A quarter of the 4096 inactive
        // anonymous pages is 1024. The swappiness is 60 of 200, so the pass looks at 1024 × 60 /
        // 200 = 307 of these pages.
        assert_eq!(counts.inactive, [307, 1433]);
        assert_eq!(counts.active, [614, 716]);
    }

    #[test]
    fn the_kind_that_costs_more_is_looked_at_less() {
        let cost = [900, 100];
        let costly = counts(&State { cost, ..PLENTY }, 2);
        let free = counts(&PLENTY, 2);
        assert!(costly.inactive[0] < free.inactive[0], "{costly:?}");
        assert!(costly.inactive[1] > free.inactive[1], "{costly:?}");
    }

    #[test]
    fn a_pass_that_has_enough_keeps_the_planned_proportion() {
        let planned = PerList {
            inactive: [100, 400],
            active: [20, 200],
        };
        let mut left = PerList {
            inactive: [50, 350],
            active: [10, 190],
        };
        // Half of the planned 120 anonymous pages were looked at. So the pass looks at about half
        // of the planned 400 inactive pages of files, 50 of which it has looked at already, and at
        // about half of the planned 200 active ones.
        assert!(keep_proportion(&planned, &mut left));
        assert_eq!(left.inactive, [0, 400 * 51 / 100 - 50]);
        assert_eq!(left.active, [0, 200 * 51 / 100 - 10]);
        assert!(!keep_proportion(&planned, &mut left), "one kind is left");
    }

    #[test]
    fn one_kind_alone_is_looked_at_if_the_other_would_not_help() {
        let only = |state: State, priority| {
            let counts = counts(&state, priority);
            [counts.of(Kind::Anon) > 0, counts.of(Kind::File) > 0]
        };
        let can_swap = false;
        assert_eq!(only(State { can_swap, ..PLENTY }, 0), [false, true]);
        assert_eq!(only(PLENTY, 0), [true, true]);
        // There are enough inactive pages of files, so only pages of files are looked at.
        let may_deactivate = [true, false];
        let trimmed = State {
            may_deactivate,
            ..PLENTY
        };
        assert_eq!(only(trimmed, 12), [false, true]);
        // The pages of files and the free pages together do not reach the high watermark, so only
        // anonymous pages are looked at.
        let may_deactivate = [false, false];
        let tiny = State {
            may_deactivate,
            high: 1 << 20,
            ..PLENTY
        };
        assert_eq!(only(tiny, 12), [true, false]);
    }
}
