//! Compares each move of pages between page lists and zones that Plimsoll makes with the move that
//! a real kernel made. The recordings are of Linux 6.12 on four CPUs, and of Linux 6.18 on a
//! computer with two CPUs.
//!
//! The expected counts are the counts that Plimsoll reaches now. If a test finds fewer identical
//! moves, a change has made Plimsoll decide differently from the kernel.

use plimsoll_lab::exact::pages::PageLists;
use plimsoll_lab::exact::{Judge, Judgement};
use plimsoll_mm::design::Design;
use plimsoll_recording::Recording;

fn judge(file: &str, design: Option<Design>) -> Judgement {
    let file = format!("{}/tests/data/{file}", env!("CARGO_MANIFEST_DIR"));
    let recording = Recording::read(&file).expect("it is in the repository");
    let judgement = PageLists { design }.judge(&recording.recording);
    judgement.expect("the recording has page lists")
}

fn counts(judgement: &Judgement) -> [u64; 3] {
    [judgement.compared, judgement.identical, judgement.set_aside]
}

#[test]
fn a_booted_kernel_of_four_cpus_is_replayed_exactly() {
    let judgement = judge("exact-6.12-4-cpus.plr", None);
    assert_eq!(counts(&judgement), [71, 71, 24], "{judgement:#?}");
    assert!(judgement.first_difference.is_empty());
    // At the end of the replay, each CPU has as many pages on its lists as the kernel reported. The
    // test leaves out CPU 0: the program that read the kernel's report ran on CPU 0 and changed its
    // lists.
    let left = &judgement.tables[1].rows;
    for row in &left[1..] {
        assert_eq!(row[4], row[5], "{row:?}");
    }
}

/// While kswapd reclaims, Linux limits page lists to four batches. While a zone is below its high
/// watermark, Linux also spills early. The recording of this test has two rounds of kswapd. In it,
/// some allocating threads also reclaim memory and drain page lists themselves.
#[test]
fn a_kernel_that_is_short_of_memory_is_replayed_but_for_two_moves() {
    let judgement = judge("exact-6.12-4-cpus-reclaim.plr", None);
    assert_eq!(counts(&judgement), [1550, 1548, 39], "{judgement:#?}");
}

/// The recorded computer has two nodes. Processes use all memory of one node, until the OOM killer
/// kills some of them. Each node's kswapd reclaims in its own node. A CPU also has page lists for
/// the other node's zone. If the CPU has not used such a list for some time, its periodic work
/// returns a batch of pages from the list.
#[test]
fn a_kernel_whose_second_node_is_used_up_is_replayed_exactly() {
    let judgement = judge("exact-6.12-2-nodes.plr", None);
    assert_eq!(counts(&judgement), [283, 283, 31], "{judgement:#?}");
    let said = |note: &String| note.contains("rounds of kswapd");
    assert_eq!(judgement.notes.iter().find(|note| said(note)), None);
}

/// Linux limits page lists while kswapd reclaims. If the recording lacks the events of kswapd, a
/// replay makes other moves than the kernel, so the report must say that the events are missing.
#[test]
fn a_kernel_that_reclaims_is_not_replayed_exactly_without_events_of_it() {
    let file = format!(
        "{}/tests/data/exact-6.12-2-nodes.plr",
        env!("CARGO_MANIFEST_DIR")
    );
    let mut recording = Recording::read(&file)
        .expect("it is in the repository")
        .recording;
    let of_reclaim = |name: &str| name.starts_with("vmscan:") || name == "plimsoll:kswapddone";
    recording
        .events
        .retain(|event| !of_reclaim(event.what.tracepoint()));
    recording.header.recorded.retain(|name| !of_reclaim(name));
    let judgement = PageLists::default().judge(&recording).expect("page lists");
    assert_eq!(counts(&judgement), [284, 282, 32], "{judgement:#?}");
    let said = "/proc/vmstat counts 16 rounds of kswapd and 746 passes of reclaim by allocations";
    assert!(
        judgement.notes.iter().any(|note| note.starts_with(said)),
        "{:?}",
        judgement.notes
    );
}

#[test]
fn the_beginning_of_a_build_on_a_computer_of_two_cpus_is_replayed_exactly() {
    let judgement = judge("exact-6.18-2-cpus.plr", None);
    assert_eq!(counts(&judgement), [268, 268, 3], "{judgement:#?}");
}

#[test]
fn another_design_moves_otherwise() {
    let ours = judge("exact-6.18-2-cpus.plr", Some(Design::OURS));
    assert!(ours.identical < ours.compared, "{ours:#?}");
    assert!(!ours.first_difference.is_empty());
    let wide = |line: &&String| line.chars().count() > 78;
    assert_eq!(ours.first_difference.iter().find(wide), None);
}

#[test]
fn moves_of_a_cpu_that_lost_events_are_set_aside_and_said() {
    let file = format!(
        "{}/tests/data/exact-6.12-4-cpus.plr",
        env!("CARGO_MANIFEST_DIR")
    );
    let mut recording = Recording::read(&file)
        .expect("it is in the repository")
        .recording;
    let whole = PageLists::default().judge(&recording).expect("page lists");
    recording.header.lost = vec![(1, 5), (2, 0)];
    // The recording now says that it has lost events of one CPU. It also lacks all events of
    // reclaim, although its counters show that kswapd ran. The report must name both defects.
    let texts = &mut recording.header.texts;
    texts.retain(|(name, _)| !name.starts_with("vmstat "));
    for (name, rounds) in [
        ("vmstat before", "pageoutrun 1"),
        ("vmstat after", "pageoutrun 4"),
    ] {
        texts.push((name.to_owned(), rounds.to_owned()));
    }
    recording.header.recorded.clear();
    let without = PageLists::default().judge(&recording).expect("page lists");
    let of_cpu = |judgement: &Judgement, cpu: usize| -> u64 {
        let cell = &judgement.tables[1].rows[cpu][1];
        cell.parse().expect("a small number")
    };
    let theirs = of_cpu(&whole, 1);
    assert!(theirs > 0, "CPU 1 moved something");
    assert_eq!(of_cpu(&without, 1), 0);
    assert_eq!(of_cpu(&without, 2), of_cpu(&whole, 2), "it lost nothing");
    assert_eq!(without.compared, whole.compared - theirs);
    assert_eq!(without.set_aside, whole.set_aside + theirs);
    let lost =
        format!("1 CPUs lost events, so it is not known what was on their lists: their {theirs} ");
    for said in [&*lost, "/proc/vmstat counts 3 rounds of kswapd while "] {
        let told = without.notes.iter().any(|note| note.starts_with(said));
        assert!(told, "{said}: {:?}", without.notes);
    }
}
