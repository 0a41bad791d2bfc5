//! Tests which events form one move of pages between page lists and a zone, and which code path
//! `show` assigns to the move.

use plimsoll_lab::show::moves::{HOLD_ENDS, Path, moves};
use plimsoll_recording::{Recording, What};

use super::{alloc, batched, drain, ends, free, recording, row, rows, starts, table, taken};

/// Returns the code path, the CPU and the number of pages of every move in a recording.
fn found(recording: &Recording) -> Vec<(Path, u32, u64)> {
    let moves = moves(recording).into_iter();
    moves.map(|one| (one.path, one.cpu, one.pages)).collect()
}

/// A refill consists of the blocks that a CPU takes from the zone until it allocates one of them. A
/// single block that is allocated at once has bypassed the lists.
#[test]
fn a_refill_is_all_that_was_taken_before_the_block_is_handed_out() {
    let recording = recording([
        (1, 0, 7, taken(10, 0)),
        (2, 0, 7, taken(11, 0)),
        // CPU 1 refills its list while CPU 0 is refilling.
        (3, 1, 8, taken(20, 1)),
        (4, 1, 8, taken(22, 1)),
        (5, 0, 7, taken(12, 0)),
        (6, 1, 8, alloc(22, 1)),
        (7, 0, 7, alloc(12, 0)),
        // This block is taken from the zone and allocated at once: the CPU's page lists were
        // locked, so the allocation bypassed them.
        (8, 0, 7, taken(13, 0)),
        (9, 0, 7, alloc(13, 0)),
        // This block of order 10 is too large for a page list, so its allocation is no refill.
        (10, 0, 7, taken(1024, 10)),
        (11, 0, 7, alloc(1024, 10)),
    ]);
    assert_eq!(
        found(&recording),
        [
            (Path::Refill, 1, 4),
            (Path::Refill, 0, 3),
            (Path::Direct, 0, 1),
            (Path::Direct, 0, 1024),
        ]
    );
}

#[test]
fn a_refill_of_whole_blocks_is_one_hold_whatever_their_orders() {
    let block = |pfn, order| What::ZoneLocked {
        pfn,
        order,
        mobility: 0,
        percpu_refill: true,
    };
    let recording = recording([
        (1, 0, 7, block(64, 5)),
        (2, 0, 7, block(16, 4)),
        (3, 0, 7, block(8, 3)),
        (4, 0, 7, What::Mark(HOLD_ENDS.to_owned())),
        (5, 0, 7, alloc(64, 0)),
    ]);
    let moves = moves(&recording);
    assert_eq!((moves.len(), moves[0].pages), (1, 56));
    assert_eq!(moves[0].holds, [56]);
}

#[test]
fn a_block_of_another_migrate_type_is_one_block_though_it_is_printed_twice() {
    let fallback = |pfn, fallback_order| What::ExtFrag {
        pfn,
        order: 0,
        fallback_order,
        mobility: 0,
        fallback: 1,
        claimed: true,
    };
    let recording = recording([
        (1, 0, 7, taken(10, 0)),
        (2, 0, 7, fallback(10, 5)),
        (3, 0, 7, fallback(64, 10)),
        (4, 0, 7, taken(65, 0)),
        (5, 0, 7, alloc(65, 0)),
    ]);
    assert_eq!(found(&recording), [(Path::Refill, 0, 3)]);
}

/// Blocks that a thread returns to the zone after it has freed a page are a spill. This remains
/// true if an interrupt emits events between the free and the spill.
#[test]
fn what_follows_a_free_is_its_spill_and_an_interrupt_does_not_part_them() {
    let recording = recording([
        (1, 0, 7, free(10)),
        (2, 0, 7, free(11)),
        (3, 0, 7, batched(10)),
        (4, 0, 7, What::ContentionEnd { lock: 1, result: 0 }),
        (5, 0, 7, drain(10)),
        (6, 0, 7, drain(99)),
        (7, 0, 7, batched(11)),
        (8, 0, 7, drain(11)),
    ]);
    assert_eq!(
        found(&recording),
        [(Path::Spill, 0, 2), (Path::Spill, 0, 1)]
    );
}

#[test]
fn a_decay_is_inside_vmstat_update_and_not_behind_it() {
    let recording = recording([
        (1, 0, 3, starts("vmstat_update", 1)),
        (2, 0, 3, drain(10)),
        (3, 0, 3, drain(11)),
        (4, 0, 3, ends("vmstat_update", 1)),
        (5, 0, 3, drain(12)),
        // The vmstat work of CPU 0 is preempted, and another thread frees a block and spills. This
        // spill is not a decay (a move by the vmstat work).
        (6, 0, 3, starts("vmstat_update", 1)),
        (7, 0, 9, free(20)),
        (8, 0, 9, drain(20)),
    ]);
    assert_eq!(
        found(&recording),
        [
            (Path::Decay, 0, 2),
            (Path::Drain, 0, 1),
            (Path::Spill, 0, 1)
        ]
    );
}

#[test]
fn blocks_that_another_cpu_freed_are_drained_list_by_list() {
    let recording = recording([
        (1, 1, 8, free(10)),
        (2, 2, 9, free(20)),
        (3, 0, 7, free(30)),
        // CPU 0 drains the lists of CPUs 1, 0 and 2. Although CPU 0 has just freed a block, the
        // pages that it returns from its own list are part of the drain and not a spill.
        (4, 0, 7, drain(10)),
        (5, 0, 7, drain(30)),
        (6, 0, 7, drain(20)),
        (7, 0, 7, drain(77)),
    ]);
    let drains = [
        (Path::Drain, 0, 1),
        (Path::Drain, 0, 1),
        (Path::Drain, 0, 2),
    ];
    assert_eq!(found(&recording), drains);
}

/// If a thread returns blocks to two zones in succession, these are two moves, one for each zone.
#[test]
fn zones_part_moves() {
    let mut recording = recording([
        (1, 0, 3, starts("vmstat_update", 1)),
        (2, 0, 3, drain(10)),
        (3, 0, 3, drain(5000)),
        (4, 0, 3, drain(5001)),
    ]);
    let zoneinfo = "Node 0, zone DMA\n spanned 4095\n start_pfn: 1\n\
                    Node 0, zone DMA32\n spanned 10000\n start_pfn: 4096\n";
    let texts = &mut recording.header.texts;
    texts.push(("zoneinfo before".to_owned(), zoneinfo.to_owned()));
    assert_eq!(
        found(&recording),
        [(Path::Decay, 0, 1), (Path::Decay, 0, 2)]
    );
}

#[test]
fn the_tables_are_of_all_moves() {
    let note = || What::Mark(HOLD_ENDS.to_owned());
    let spill = |from: u64, pages: u64| {
        let drains = (from..from + pages).map(drain);
        [free(from)].into_iter().chain(drains).chain([note()])
    };
    let events = spill(1000, 63)
        .chain(spill(2000, 10))
        .chain([drain(3000), note()]);
    let recording = recording((1..).zip(events).map(|(at, what)| (at, 2, 7, what)));
    let moves = [row("spill", &[2.0, 74.0, 37.0, 11.0, 63.0, 63.0])];
    assert_eq!(rows(&table(&recording, "moves")), moves);
    let holds = [row("spill", &[3.0, 74.0, 74.0 / 3.0, 10.0, 63.0, 63.0])];
    assert_eq!(rows(&table(&recording, "holds")), holds);
    let all = [0.0, 0.0, 2.0, 74.0, 0.0, 0.0, 0.0, 0.0];
    assert_eq!(
        rows(&table(&recording, "cpus")),
        [row("all", &all), row("2", &all)]
    );
}
