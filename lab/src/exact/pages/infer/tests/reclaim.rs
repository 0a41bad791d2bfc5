//! Tests what the replay derives from the kernel's events about reclaim and shortages.

use super::*;

const WAKE: What = What::KswapdWake {
    node: 0,
    zone: 2,
    order: 0,
};

#[test]
fn kswapd_reclaims_from_the_beginning_of_its_round_to_the_end() {
    let found = infer(&[WAKE, free(5), What::KswapdDone, free(6)]);
    assert!(
        matches!(
            actions(&found)[..],
            [
                Action::Reclaim {
                    node: 0,
                    highest: 2,
                    active: true
                },
                Action::Free { pfn: 5, .. },
                Action::Reclaim { active: false, .. },
                Action::Free { pfn: 6, .. },
            ]
        ),
        "{:?}",
        found.ops
    );
}

#[test]
fn the_end_of_a_round_is_of_the_node_whose_kswapd_began_it() {
    let wake = |node| What::KswapdWake {
        node,
        zone: 2,
        order: 0,
    };
    let done = What::KswapdDone;
    let happened = [(40, wake(0)), (41, wake(1)), (40, done.clone()), (41, done)];
    let event = |(pid, what): (u32, What)| Event {
        time_ns: 0,
        cpu: 0,
        pid,
        what,
    };
    let recording = Recording {
        events: happened.into_iter().map(event).collect(),
        ..Recording::default()
    };
    let found = Inferred::of(&recording, &zones(), 0);
    let round = |action: &Action| match *action {
        Action::Reclaim { node, active, .. } => (node, active),
        ref other => panic!("{other:?}"),
    };
    let rounds: Vec<_> = actions(&found).into_iter().map(round).collect();
    assert_eq!(rounds, [(0, true), (1, true), (0, false), (1, false)]);
}

/// If no event shows that a round of kswapd ends, the replay assumes that the round ends with
/// kswapd's last event about a page.
#[test]
fn without_an_event_of_its_end_a_round_ends_with_what_kswapd_frees_last() {
    let found = infer(&[WAKE, free(5), drained(5), What::KswapdSleep { node: 0 }]);
    let [_, freed, ended, _] = &found.ops[..] else {
        panic!("{:?}", found.ops);
    };
    assert_eq!(freed.moves[0].kind, Kind::Spill);
    let off = matches!(ended.action, Action::Reclaim { active: false, .. });
    assert!(off && ended.event == 2, "{ended:?}");
}

/// If an allocation wakes kswapd, the allocation has found its zones short of memory. The exception
/// is a wakeup event without GFP flags, whose cause is a watermark boost and not a shortage.
#[test]
fn an_allocation_that_wakes_kswapd_found_its_zones_short_but_for_a_boost() {
    let woken = |gfp| What::WakeupKswapd {
        node: 0,
        zone: 1,
        order: 0,
        gfp,
    };
    assert_eq!(infer(&[woken(0)]).ops, []);
    let direct = What::DirectReclaimBegin { order: 0, gfp: 1 };
    let failed = What::AllocFailed {
        order: 9,
        mobility: Some(1),
    };
    let found = infer(&[woken(0xcc0), direct, failed]);
    assert!(
        matches!(
            actions(&found)[..],
            [
                Action::Shortage {
                    node: Some(0),
                    highest: 1
                },
                Action::Shortage {
                    node: None,
                    highest: u8::MAX
                },
                Action::Shortage {
                    node: None,
                    highest: u8::MAX
                },
            ]
        ),
        "{:?}",
        found.ops
    );
}

/// Direct reclaim drains page lists. So blocks that a thread returns to a zone after direct reclaim
/// must count as a drain. This is true even if the thread has just freed a page, which could have
/// filled the lists and caused a spill.
#[test]
fn what_is_drained_after_reclaim_by_an_allocation_is_no_spill_of_its_last_free() {
    let reclaims = What::DirectReclaimEnd { pages: 1 };
    let found = infer(&[free(5), reclaims, drained(5)]);
    let [freed, drain] = &found.ops[..] else {
        panic!("{:?}", found.ops);
    };
    assert_eq!(freed.moves, []);
    assert!(matches!(drain.action, Action::Drain { .. }), "{drain:?}");
    assert_eq!(drain.moves[0].kind, Kind::Drain);
}

#[test]
fn a_round_of_kswapd_takes_a_boost_away_and_then_kswapd_sleeps() {
    let mixed = What::ExtFrag {
        pfn: 512,
        order: 0,
        fallback_order: 3,
        mobility: 0,
        fallback: 1,
        claimed: true,
    };
    let happened = [mixed, WAKE, What::KswapdDone, What::KswapdSleep { node: 0 }];
    let mut zones = zones();
    zones[0].marks = [1000, 2000, 3000];
    let found = infer_in(&happened, &zones, 0);
    assert!(
        matches!(
            actions(&found)[..],
            [
                Action::Bulk { .. },
                Action::Boost {
                    zone: 0,
                    pages: 512
                },
                Action::Reclaim { active: true, .. },
                Action::Reclaim { active: false, .. },
                Action::Boost { zone: 0, pages: 0 },
                Action::Sleep { node: 0 },
            ]
        ),
        "{:?}",
        found.ops
    );
}

/// If `/proc/zoneinfo` shows a watermark boost, the boost began before the recording. It ends with
/// the first round of kswapd that begins after the recorder read `/proc/zoneinfo`.
#[test]
fn a_boost_of_before_is_as_zoneinfo_tells_and_ends_with_a_round() {
    let mut zones = zones();
    zones[0].boost = 1024;
    let done = What::KswapdDone;
    let found = infer_in(&[WAKE, done.clone(), WAKE, done], &zones, 2);
    assert!(
        matches!(
            actions(&found)[..],
            [
                Action::Reclaim { active: true, .. },
                Action::Reclaim { active: false, .. },
                Action::Boost {
                    zone: 0,
                    pages: 1024
                },
                Action::Reclaim { active: true, .. },
                Action::Reclaim { active: false, .. },
                Action::Boost { zone: 0, pages: 0 },
            ]
        ),
        "{:?}",
        found.ops
    );
}

/// An event of reclaim concerns the node that it names or, if it names none, the node of the kswapd
/// that runs in the event's thread. Only the boosts of this node's zones end with a round.
#[test]
fn each_event_of_reclaim_concerns_its_own_node() {
    let mut zones = zones();
    zones[0].marks = [1000, 2000, 3000];
    zones.push(ZoneInfo {
        node: 1,
        start: 1 << 20,
        ..zones[0].clone()
    });
    let mixed = |pfn| What::ExtFrag {
        pfn,
        order: 0,
        fallback_order: 3,
        mobility: 0,
        fallback: 1,
        claimed: true,
    };
    let happened = [
        mixed(512),
        free(5),
        mixed((1 << 20) + 512),
        What::WakeupKswapd {
            node: 1,
            zone: 2,
            order: 0,
            gfp: 0xcc0,
        },
        What::KswapdWake {
            node: 1,
            zone: 2,
            order: 0,
        },
        What::KswapdDone,
        What::KswapdSleep { node: 1 },
    ];
    let found = infer_in(&happened, &zones, 0);
    let of_reclaim =
        |action: &&Action| !matches!(action, Action::Bulk { .. } | Action::Free { .. });
    let boost = |zone, pages| Action::Boost { zone, pages };
    let round = |highest, active| Action::Reclaim {
        node: 1,
        highest,
        active,
    };
    let expected = [
        boost(0, 512),
        boost(1, 512),
        Action::Shortage {
            node: Some(1),
            highest: 2,
        },
        round(2, true),
        round(u8::MAX, false),
        boost(1, 0),
        Action::Sleep { node: 1 },
    ];
    let told: Vec<&Action> = actions(&found).into_iter().filter(of_reclaim).collect();
    assert_eq!(told, expected.iter().collect::<Vec<_>>());
}
