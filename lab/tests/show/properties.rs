//! Tests that the tables account for every event exactly once, whatever a recording contains.

use plimsoll_lab::show::moves::moves;
use plimsoll_recording::{Recording, What};
use proptest::prelude::*;

use super::{alloc, batched, drain, ends, free, recording, rows, stack, starts, table, taken};

/// Generates an event of any kind that the tables count. There are few threads, pages and locks, so
/// that several events concern the same thread, page or lock.
fn what() -> impl Strategy<Value = What> {
    let (pfn, lock) = (0..12_u64, 0..3_u64);
    let pid = 100..104_u32;
    prop_oneof![
        (pfn.clone(), 0..2_u8).prop_map(|(pfn, order)| taken(pfn, order)),
        (pfn.clone(), 0..2_u8).prop_map(|(pfn, order)| alloc(pfn, order)),
        pfn.clone().prop_map(drain),
        pfn.clone().prop_map(drain),
        pfn.clone().prop_map(drain),
        pfn.clone().prop_map(free),
        pfn.prop_map(batched),
        lock.clone().prop_map(|lock| What::ContentionBegin {
            lock,
            flags: 1,
            stack: stack(&["rmqueue_bulk"]),
        }),
        lock.prop_map(|lock| What::ContentionEnd { lock, result: 0 }),
        Just(starts("vmstat_update", 1)),
        Just(ends("vmstat_update", 1)),
        Just(starts("vmstat_shepherd", 2)),
        pid.clone().prop_map(|victim| What::MarkVictim { victim }),
        pid.prop_map(|victim| What::FinishReaping { victim }),
        Just(What::ExitMmap),
    ]
}

prop_compose! {
    fn any_recording()(
        events in prop::collection::vec((0..3_u32, 100..104_u32, what()), 1..200)
    ) -> Recording {
        let at = |(time_ns, (cpu, pid, what))| (time_ns, cpu, pid, what);
        recording((1..).zip(events).map(at))
    }
}

fn count(recording: &Recording, is: impl Fn(&What) -> bool) -> f64 {
    recording
        .events
        .iter()
        .filter(|event| is(&event.what))
        .count() as f64
}

fn column(recording: &Recording, name: &str, nth: usize) -> f64 {
    let rows = rows(&table(recording, name)).into_iter();
    rows.filter(|(key, _)| key != "all")
        .map(|(_, values)| values[nth])
        .sum()
}

proptest! {
    #[test]
    fn every_event_is_of_one_kind(recording in any_recording()) {
        let events = recording.events.len() as f64;
        prop_assert_eq!(column(&recording, "events", 0), events);
    }

    #[test]
    fn every_page_that_is_drained_is_in_one_move(recording in any_recording()) {
        let drained = count(&recording, |what| matches!(what, What::PcpuDrain { .. }));
        let given = [3, 5, 7].map(|nth| column(&recording, "cpus", nth));
        prop_assert_eq!(given.iter().sum::<f64>(), drained);
        let all: u64 = moves(&recording).iter().map(|one| one.pages).sum();
        prop_assert_eq!(column(&recording, "moves", 1), all as f64);
    }

    #[test]
    fn every_wait_is_counted_left_open_or_left_out(recording in any_recording()) {
        let ends = count(&recording, |what| matches!(what, What::ContentionEnd { .. }));
        let waits = plimsoll_lab::show::waits::Contentions::of(&recording, &[]);
        let counted: u64 = waits.rows.iter().map(|row| row.waits.count).sum();
        prop_assert_eq!((counted - waits.open + waits.begun_before) as f64, ends);
    }

    #[test]
    fn every_firing_is_on_one_cpu_and_in_one_crowd_at_least(recording in any_recording()) {
        let update = starts("vmstat_update", 1);
        let runs = count(&recording, |what| *what == update);
        prop_assert_eq!(column(&recording, "firings", 0), runs);
        let rows = rows(&table(&recording, "crowding"));
        prop_assert!(rows.iter().all(|(_, values)| 1.0 <= values[0] && values[0] <= runs));
    }

    #[test]
    fn a_recording_beside_itself_differs_nowhere(recording in any_recording()) {
        for figures in plimsoll_lab::show::figures(&recording, &[]) {
            for row in figures.beside(&figures, usize::MAX).rows {
                let [.., a, b, ratio] = row.as_slice() else { panic!("a row has a ratio") };
                prop_assert_eq!(a, b);
                prop_assert!(ratio == "1.000" || ratio == "–", "{:?}", row);
            }
        }
    }
}
