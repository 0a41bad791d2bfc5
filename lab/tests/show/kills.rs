//! Tests the tables of `plimsoll show` about OOM victims and the reaping of their memory.

use plimsoll_recording::What;

use super::{recording, row, rows, table};

const MS: u64 = 1_000_000;

#[test]
fn each_victim_is_shown_once_with_times_since_its_kill() {
    let recording = recording([
        (0, 0, 1, What::Mark("start".to_owned())),
        (10 * MS, 0, 50, What::MarkVictim { victim: 812 }),
        // Process 812, which is already dying, needs memory and therefore marks itself as a victim
        // again. The table must not count this process twice.
        (11 * MS, 1, 812, What::MarkVictim { victim: 812 }),
        (20 * MS, 0, 50, What::MarkVictim { victim: 813 }),
        (25 * MS, 1, 812, What::ExitMmap),
        (26 * MS, 1, 999, What::ExitMmap),
        (2020 * MS, 0, 0, What::WakeReaper { victim: 813 }),
        (2021 * MS, 2, 40, What::StartReaping { victim: 813 }),
        (2022 * MS, 2, 40, What::SkipReaping { victim: 813 }),
        (2121 * MS, 2, 40, What::StartReaping { victim: 813 }),
        (2125 * MS, 2, 40, What::FinishReaping { victim: 813 }),
        // The kernel gives the process id 812 to a new process, which also becomes a victim.
        (3000 * MS, 0, 51, What::MarkVictim { victim: 812 }),
    ]);
    let ms = |ms: u64| (ms * MS) as f64;
    assert_eq!(
        rows(&table(&recording, "victims")),
        [
            row("1 812 50", &[ms(10), -1.0]),
            row("2 813 50", &[ms(20), ms(10)]),
            row("3 812 51", &[ms(3000), ms(2980)]),
        ]
    );
    assert_eq!(
        rows(&table(&recording, "reaping")),
        [
            row("1 812", &[-1.0, -1.0, -1.0, 0.0, ms(15)]),
            row("2 813", &[ms(2000), ms(2001), ms(2105), 1.0, -1.0]),
            row("3 812", &[-1.0, -1.0, -1.0, 0.0, -1.0]),
        ]
    );
}

#[test]
fn a_victim_that_is_reaped_in_several_attempts_is_finished_with_the_last() {
    let recording = recording([
        (0, 0, 50, What::MarkVictim { victim: 813 }),
        (2000 * MS, 0, 0, What::WakeReaper { victim: 813 }),
        (2001 * MS, 2, 40, What::StartReaping { victim: 813 }),
        (2005 * MS, 2, 40, What::FinishReaping { victim: 813 }),
        (2101 * MS, 2, 40, What::StartReaping { victim: 813 }),
        (2130 * MS, 2, 40, What::FinishReaping { victim: 813 }),
    ]);
    let ms = |ms: u64| (ms * MS) as f64;
    assert_eq!(
        rows(&table(&recording, "reaping")),
        [row("1 813", &[ms(2000), ms(2001), ms(2130), 0.0, -1.0])]
    );
}
