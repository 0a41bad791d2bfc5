//! Tests the tables of the periodic work: runs of `vmstat_update` by CPU, how many CPUs start it at
//! once, and the rounds of `vmstat_shepherd`.

use plimsoll_recording::{Recording, What};

use super::{ends, recording, row, rows, starts, symbol, table};

const MS: u64 = 1_000_000;

fn fires(at_ns: u64, cpu: u32) -> [(u64, u32, u32, What); 2] {
    let work = 100 + u64::from(cpu);
    [
        (at_ns, cpu, 3, starts("vmstat_update", work)),
        (at_ns + 10, cpu, 3, ends("vmstat_update", work)),
    ]
}

#[test]
fn intervals_are_between_runs_on_one_cpu() {
    let events = [
        fires(0, 0),
        fires(MS, 1),
        fires(1000 * MS, 0),
        fires(1996 * MS, 0),
    ];
    let recording = recording(events.concat());
    let [least, median, longest] = [996, 998, 1000].map(|ms| (ms * MS) as f64);
    assert_eq!(
        rows(&table(&recording, "firings")),
        [
            row("all", &[4.0, 0.0, least, median, longest]),
            row("0", &[3.0, 0.0, least, median, longest]),
            row("1", &[1.0, 0.0, -1.0, -1.0, -1.0]),
        ]
    );
}

/// If the shepherd queues a CPU's vmstat work, only the next run of this work counts as started by
/// the shepherd. Later runs count as started by the work's own timer.
#[test]
fn the_shepherd_s_doing_is_the_next_run_of_the_work_it_queued() {
    let function = symbol("vmstat_update");
    let queued = |at, cpu, work| (at, cpu, 5, What::WorkQueued { work, function });
    let mut events = vec![
        // This run counts as started by the work's own timer, because no round of the shepherd was
        // in progress when the work was queued.
        queued(10, 1, 101),
    ];
    events.extend(fires(20, 1));
    events.extend([
        (100, 0, 5, starts("vmstat_shepherd", 1)),
        queued(110, 0, 101),
        queued(120, 0, 102),
        (130, 0, 5, ends("vmstat_shepherd", 1)),
    ]);
    events.extend(fires(200, 1));
    events.extend(fires(300, 1));
    events.extend([
        (400, 0, 5, starts("vmstat_shepherd", 1)),
        (410, 0, 5, ends("vmstat_shepherd", 1)),
    ]);
    let recording = recording(events);
    assert_eq!(
        rows(&table(&recording, "shepherd")),
        [row("shepherd", &[2.0, 2.0, 2.0, 300.0])]
    );
    assert_eq!(rows(&table(&recording, "firings"))[0].1[..2], [3.0, 1.0]);
}

/// Makes a recording at HZ 250 in which the vmstat work of three CPUs starts at 8, 11 and 14 ms.
/// Ticks are 4 ms apart. If `phase_ns` is given, a timer expires `phase_ns` after 20 ms. This
/// expiry shows when ticks come.
fn three(phase_ns: Option<u64>) -> Recording {
    let runs = [0, 3, 6].map(|ms| 8 * MS + ms * MS);
    let mut events: Vec<_> = (0..)
        .zip(runs)
        .flat_map(|(cpu, at)| fires(at, cpu))
        .collect();
    events.extend(phase_ns.map(|phase_ns| {
        let what = What::TimerExpire {
            timer: 1,
            function: symbol("vmstat_update"),
            now: 4_294_937_296,
        };
        (20 * MS + phase_ns, 0, 0, what)
    }));
    recording(events)
}

#[test]
fn crowds_are_counted_in_windows_and_on_ticks_wherever_these_are() {
    let crowd = |recording: &Recording| rows(&table(recording, "crowding"));
    let windows = |tick: f64| {
        [
            row("one tick", &[tick]),
            row("1 ms", &[1.0]),
            row("4 ms", &[2.0]),
            row("32 ms", &[3.0]),
        ]
    };
    // The vmstat works start at 8, 11 and 14 ms. If no timer has expired, the table assumes ticks
    // at 8, 12, … ms. An expiry at 23 ms shows that ticks come at 7, 11, … ms. Either way, two
    // starts share a tick.
    assert_eq!(crowd(&three(None)), windows(2.0));
    assert_eq!(crowd(&three(Some(3 * MS))), windows(2.0));
    // A timer that expires at 22 ms shows that ticks come at 6, 10, 14, … ms. So none of the starts
    // at 8, 11 and 14 ms share a tick.
    assert_eq!(crowd(&three(Some(2 * MS))), windows(1.0));
}
