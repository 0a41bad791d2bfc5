//! Finds the ends of kswapd's rounds of reclaim where no event shows them.
//!
//! An event always shows where a round begins. Only a probe shows where a round ends, and the
//! recorder cannot set this probe on every kernel. kswapd's sleep event does not show the end,
//! because kswapd waits a tenth of a second for more work before it goes to sleep.

use std::collections::{HashMap, HashSet};

use plimsoll_recording::event::{Event, What};

/// The rounds of reclaim whose end no event shows. Each round is stored as the index of the last
/// event that belongs to it.
pub(super) struct Rounds {
    last: HashSet<usize>,
}

impl Rounds {
    pub(super) fn of(events: &[Event]) -> Self {
        let mut last = HashSet::new();
        // The rounds that have not ended. The key is the thread id of the round's kswapd. The value
        // is the index of the round's last event about a page or, if there was none, of the round's
        // first event.
        let mut open: HashMap<u32, usize> = HashMap::new();
        for (index, event) in events.iter().enumerate() {
            match event.what {
                What::KswapdWake { .. } => last.extend(open.insert(event.pid, index)),
                What::KswapdSleep { .. } => last.extend(open.remove(&event.pid)),
                What::KswapdDone => {
                    open.remove(&event.pid);
                }
                What::Free { .. } | What::FreeBatched { .. } | What::PcpuDrain { .. } => {
                    if let Some(latest) = open.get_mut(&event.pid) {
                        *latest = index;
                    }
                }
                _ => {}
            }
        }
        Self { last }
    }

    /// Returns whether event `index` is the last event of a round of reclaim by kswapd, if no event
    /// shows the end of this round.
    pub(super) fn ends_after(&self, index: usize) -> bool {
        self.last.contains(&index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KSWAPD: u32 = 40;

    fn ends(happened: &[(u32, What)]) -> Vec<usize> {
        let event = |(pid, what): &(u32, What)| Event {
            time_ns: 0,
            cpu: 0,
            pid: *pid,
            what: what.clone(),
        };
        let events: Vec<Event> = happened.iter().map(event).collect();
        let rounds = Rounds::of(&events);
        (0..events.len())
            .filter(|&index| rounds.ends_after(index))
            .collect()
    }

    const WAKE: What = What::KswapdWake {
        node: 0,
        zone: 2,
        order: 0,
    };
    const FREE: What = What::FreeBatched { pfn: 7 };

    #[test]
    fn a_round_ends_with_the_last_page_that_kswapd_frees() {
        let happened = [
            (KSWAPD, WAKE),
            (KSWAPD, FREE),
            (7, FREE),
            (KSWAPD, FREE),
            (7, FREE),
            (KSWAPD, What::KswapdSleep { node: 0 }),
            (KSWAPD, FREE),
        ];
        assert_eq!(ends(&happened), [3]);
    }

    #[test]
    fn another_round_ends_the_one_before() {
        let happened = [(KSWAPD, WAKE), (KSWAPD, FREE), (KSWAPD, WAKE), (7, FREE)];
        assert_eq!(ends(&happened), [1]);
    }

    #[test]
    fn where_an_event_tells_the_end_nothing_is_inferred() {
        let happened = [
            (KSWAPD, WAKE),
            (KSWAPD, FREE),
            (KSWAPD, What::KswapdDone),
            (KSWAPD, What::KswapdSleep { node: 0 }),
        ];
        assert!(ends(&happened).is_empty());
    }
}
