//! Tests how operations are derived from the events of small recordings. In each recording, the
//! tested code must find a fact that no event shows.

mod reclaim;

use super::super::op::Kind;
use super::super::zoneinfo::ListInfo;
use super::*;

fn zones() -> Vec<ZoneInfo> {
    let lists = ListInfo {
        batch: 63,
        ..ListInfo::default()
    };
    vec![ZoneInfo {
        spanned: 1 << 20,
        managed: 1 << 20,
        lists: vec![Some(lists); 2],
        ..ZoneInfo::default()
    }]
}

fn infer(whats: &[What]) -> Inferred {
    infer_in(whats, &zones(), 0)
}

fn infer_in(whats: &[What], zones: &[ZoneInfo], read_at: usize) -> Inferred {
    let event = |(time_ns, what): (u64, &What)| Event {
        time_ns,
        cpu: 0,
        pid: 7,
        what: what.clone(),
    };
    let recording = Recording {
        events: (0..).zip(whats).map(event).collect(),
        ..Recording::default()
    };
    Inferred::of(&recording, zones, read_at)
}

fn alloc(pfn: u64, kind: u8) -> What {
    What::Alloc {
        pfn,
        order: 0,
        mobility: Some(kind),
        gfp: None,
    }
}

fn free(pfn: u64) -> What {
    What::Free { pfn, order: 0 }
}

fn batched(pfn: u64) -> What {
    What::FreeBatched { pfn }
}

fn taken(pfn: u64, mobility: u8) -> What {
    What::ZoneLocked {
        pfn,
        order: 0,
        mobility,
        percpu_refill: true,
    }
}

fn drained(pfn: u64) -> What {
    What::PcpuDrain {
        pfn,
        order: 0,
        mobility: Some(MOVABLE),
    }
}

fn place(list: u8) -> Place {
    Place {
        cpu: 0,
        zone: 0,
        list: ListId(list),
    }
}

#[test]
fn a_refill_belongs_to_the_allocation_that_gets_its_first_block() {
    let found = infer(&[
        taken(10, 1),
        taken(11, 1),
        taken(12, 1),
        alloc(10, 1),
        alloc(11, 1),
    ]);
    let [first, second] = &found.ops[..] else {
        panic!("{:?}", found.ops);
    };
    assert_eq!((first.moves.len(), first.moves[0].pages()), (1, 3));
    assert_eq!(first.moves[0].kind, Kind::Refill);
    assert_eq!(second.moves, []);
    assert_eq!((found.tally.predictable, found.tally.predicted), (1, 1));
}

/// If a page is allocated although other pages lie above it on its list, a bulk allocation without
/// an event had taken the other pages before.
#[test]
fn pages_above_one_that_is_handed_out_were_taken_unseen() {
    let refill: Vec<What> = (10..18).map(|pfn| taken(pfn, 0)).collect();
    let later = [
        alloc(10, 0),
        alloc(15, 0),
        free(11),
        free(12),
        free(13),
        free(14),
    ];
    let found = infer(&[refill, later.to_vec()].concat());
    let Action::Bulk { pfns, list, .. } = &found.ops[1].action else {
        panic!("{:?}", found.ops);
    };
    assert_eq!((&pfns[..], *list), (&[11, 12, 13, 14][..], ListId(0)));
    assert_eq!(found.tally.predicted, found.tally.predictable);
}

/// If a page leaves a list although no event has put the page there, the page was on the list
/// before the recording.
#[test]
fn what_is_handed_out_without_having_come_was_there_before() {
    let found = infer(&[
        alloc(20, 1),
        free(5),
        drained(30),
        drained(29),
        alloc(5, 1),
        alloc(21, 1),
    ]);
    assert_eq!(found.before[&place(1)], [20, 21, 29, 30]);
    let spilled = found.ops.iter().find(|op| !op.moves.is_empty()).unwrap();
    assert_eq!(
        (spilled.moves[0].kind, spilled.moves[0].pages()),
        (Kind::Spill, 2)
    );
    assert_eq!(found.tally.drained_elsewhere, 0);
}

/// A CPU that frees a batch of pages holds its pcp lock. If an interrupt frees a block during this
/// time, the interrupt must return this block directly to the zone.
#[test]
fn an_interrupt_in_the_middle_of_a_batch_frees_past_the_lists() {
    let found = infer(&[
        free(1),
        free(2),
        batched(1),
        free(9),
        batched(2),
        alloc(2, 1),
    ]);
    let direct = |op: &&Op| matches!(op.action, Action::FreeDirect { pfn: 9, .. });
    assert_eq!(
        found.ops.iter().filter(direct).count(),
        1,
        "{:?}",
        found.ops
    );
    assert_eq!(found.ops.len(), 4);
}

/// A refill takes several blocks, so a single block that leaves the zone went to the caller.
#[test]
fn a_lone_block_from_the_zone_is_no_refill() {
    let found = infer(&[taken(10, 1), alloc(10, 1)]);
    assert!(matches!(
        found.ops[..],
        [Op {
            action: Action::AllocDirect { pfn: 10, .. },
            ..
        }]
    ));
}

/// A spill (return of pages to the zone) belongs to the free that comes before it, even if an
/// interrupt allocates a page between the free and the spill.
#[test]
fn a_spill_that_an_interrupt_delays_belongs_to_its_free() {
    let found = infer(&[free(5), taken(40, 0), alloc(40, 0), drained(5)]);
    let spills = found.ops.iter().filter(|op| !op.moves.is_empty());
    let spills: Vec<&Op> = spills.collect();
    assert_eq!(spills.len(), 1);
    assert!(matches!(spills[0].action, Action::Free { pfn: 5, .. }));
    assert_eq!(spills[0].moves[0].kind, Kind::Spill);
}

#[test]
fn a_block_that_an_earlier_event_touches_was_not_on_a_list_before() {
    // Frame 30 was allocated directly from the zone. Then frame 30 is allocated from a list, and no
    // event shows how it came to the list. So this allocation counts as unexplained.
    let found = infer(&[taken(30, 1), alloc(30, 1), alloc(30, 1), alloc(31, 1)]);
    assert_eq!(found.before[&place(1)], [31]);
    assert_eq!(found.tally.unexplained, 1);
    let [first, second, third] = actions(&found)[..] else {
        panic!("{:?}", found.ops);
    };
    assert!(matches!(first, Action::AllocDirect { pfn: 30, .. }));
    assert!(matches!(second, Action::AllocDirect { pfn: 30, .. }));
    assert!(matches!(third, Action::Alloc { pfn: 31, .. }));
}

/// A block can return to the zone from a list although no event put the block there. In this case,
/// the block was on the list before the recording, unless an earlier event touches the block.
#[test]
fn a_block_that_an_earlier_event_touches_and_that_is_given_back_was_not_there_before() {
    let found = infer(&[
        taken(30, 1),
        alloc(30, 1),
        free(5),
        drained(30),
        drained(29),
    ]);
    assert_eq!(found.before[&place(1)], [29]);
}

/// A refill put pages on a list. If a later allocation takes the lower of two of these pages, a
/// bulk allocation had taken the upper one before.
#[test]
fn a_page_that_a_refill_brought_and_that_is_passed_over_was_taken_unseen() {
    let found = infer(&[
        taken(10, 1),
        taken(11, 1),
        taken(12, 1),
        alloc(10, 1),
        alloc(12, 1),
    ]);
    let [_, taken, _] = actions(&found)[..] else {
        panic!("{:?}", found.ops);
    };
    let Action::Bulk { pfns, .. } = taken else {
        panic!("{taken:?}");
    };
    assert_eq!(pfns[..], [11]);
}

#[test]
fn what_is_on_a_list_when_it_is_refilled_was_taken_before() {
    // Frame 5 is freed to a list. Later the list is refilled, so the list must have been empty:
    // frame 5 had left it without an event. So frame 5 does not come from this list when it is
    // allocated again.
    let found = infer(&[
        free(5),
        taken(10, 1),
        taken(11, 1),
        alloc(10, 1),
        alloc(5, 1),
    ]);
    let [_, taken, refilled, again] = actions(&found)[..] else {
        panic!("{:?}", found.ops);
    };
    assert!(matches!(taken, Action::Bulk { pfns, .. } if pfns[..] == [5]));
    assert!(matches!(refilled, Action::Alloc { pfn: 10, .. }));
    assert!(matches!(again, Action::AllocDirect { pfn: 5, .. }));
}

/// If a block is freed although it seems to be on a list already, the block had left this list
/// before, without an event.
#[test]
fn a_block_that_leaves_the_zone_while_it_is_listed_was_taken_before() {
    let found = infer(&[free(5), alloc(5, 1), free(5), free(5), alloc(5, 1)]);
    let [_, _, _, taken, _, _] = actions(&found)[..] else {
        panic!("{:?}", found.ops);
    };
    assert!(matches!(taken, Action::Bulk { pfns, .. } if pfns[..] == [5]));
}

fn never_seen(found: &Inferred) -> Vec<(u8, u32)> {
    let of = |op: &Op| match op.action {
        Action::BulkNeverSeen { zone, pages } => Some((zone, pages)),
        _ => None,
    };
    found.ops.iter().filter_map(of).collect()
}

#[test]
fn a_bulk_allocation_of_pages_that_no_event_shows_is_of_the_zone_of_the_next_allocation() {
    let mut zones = zones();
    zones.push(ZoneInfo {
        start: 1 << 20,
        ..zones[0].clone()
    });
    let bulk = What::BulkAlloc { pages: 4 };
    let near = infer_in(&[bulk.clone(), free(6), alloc(5, 1)], &zones, 0);
    assert_eq!(never_seen(&near), [(0, 4)]);
    let far = infer_in(&[bulk.clone(), alloc((1 << 20) + 5, 1)], &zones, 0);
    assert_eq!(never_seen(&far), [(1, 4)]);
    let last = infer_in(&[bulk], &zones, 0);
    assert_eq!(never_seen(&last), [(1, 4)], "the highest zone is likeliest");
}

/// No event shows the zone of a bulk allocation. The replay assumes the zone of the same thread's
/// next allocation. Other threads can have other memory policies, so their allocations do not
/// count.
#[test]
fn the_next_allocation_of_another_thread_does_not_tell_the_zone_of_a_bulk_allocation() {
    let mut zones = zones();
    zones.push(ZoneInfo {
        start: 1 << 20,
        ..zones[0].clone()
    });
    let event = |(pid, what): (u32, What)| Event {
        time_ns: 0,
        cpu: 0,
        pid,
        what,
    };
    let happened = [
        (7, What::BulkAlloc { pages: 4 }),
        (8, alloc((1 << 20) + 5, 1)),
        (7, alloc(5, 1)),
    ];
    let recording = Recording {
        events: happened.into_iter().map(event).collect(),
        ..Recording::default()
    };
    let found = Inferred::of(&recording, &zones, 0);
    assert_eq!(never_seen(&found), [(0, 4)]);
}

/// In Linux, bulk allocations take unmovable pages. So if pages of several types left their lists
/// without an event, the bulk allocation took the unmovable pages.
#[test]
fn a_bulk_allocation_takes_unmovable_pages_rather_than_movable_ones() {
    let unmovable = [taken(600, 0), alloc(600, 0), free(601), free(602)];
    let movable = [taken(1100, 1), alloc(1100, 1), free(1101), free(1102)];
    let bulk = [What::BulkAlloc { pages: 2 }];
    let found = infer(&[&unmovable[..], &movable, &bulk].concat());
    let Some(Action::Bulk { list, pfns, .. }) = actions(&found).last().copied() else {
        panic!("{:?}", found.ops);
    };
    assert_eq!((*list, &pfns[..]), (ListId(0), &[602, 601][..]));
}

/// If enough pages are known to be on the list, a bulk allocation takes these pages. Only otherwise
/// does the replay assume that it also took pages that no event shows.
#[test]
fn a_bulk_allocation_of_pages_that_lie_on_a_list_takes_no_others() {
    let bulk = |pages| What::BulkAlloc { pages };
    let block = taken(600, 0);
    let [one, two] = [601, 602].map(free);
    let known = [
        block.clone(),
        alloc(600, 0),
        one.clone(),
        two.clone(),
        bulk(2),
    ];
    assert_eq!(never_seen(&infer(&known)), []);
    let half = [block, alloc(600, 0), one, two, bulk(3)];
    assert_eq!(never_seen(&infer(&half)), [(0, 1)]);
}

/// CPU 1 frees blocks to its own page lists, and CPU 0 then returns these blocks to the zone. This
/// means that CPU 0 has drained the lists of CPU 1.
#[test]
fn a_drain_is_of_the_lists_of_the_cpu_that_freed_the_blocks() {
    let event = |(cpu, what): (u32, What)| Event {
        time_ns: 0,
        cpu,
        pid: 7 + cpu,
        what,
    };
    let happened = [(1, free(5)), (1, free(6)), (0, drained(5)), (0, drained(6))];
    let recording = Recording {
        events: happened.into_iter().map(event).collect(),
        ..Recording::default()
    };
    let found = Inferred::of(&recording, &zones(), 0);
    let drain = found.ops.last().expect("the drain");
    assert_eq!(
        (drain.cpu, &drain.action),
        (1, &Action::Drain { zone: 0, by: 0 })
    );
    assert_eq!(drain.moves[0].pages(), 2);
}

fn actions(found: &Inferred) -> Vec<&Action> {
    found.ops.iter().map(|op| &op.action).collect()
}
