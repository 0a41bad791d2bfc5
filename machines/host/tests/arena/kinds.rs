//! Tests of the options of an arena, and of a second mapping of an arena's file.
#![expect(
    unsafe_code,
    reason = "the tests read and write pages through their pointers"
)]

use std::fs;
use std::os::fd::AsRawFd;

use memmap2::MmapOptions;
use plimsoll_host::arena::{Arena, ArenaError, ArenaOptions, HugePages, OnFork};
use plimsoll_host::numa::{self, Placement};
use plimsoll_mm::units::{NodeId, Pages, Pfn};

fn shared(pages: u32) -> Arena {
    let options = ArenaOptions::new(Pages(pages)).memfd("plimsoll-test");
    options.map().expect("a little memory can be mapped")
}

#[test]
fn another_mapping_of_the_file_sees_the_frames() {
    let arena = shared(2048);
    assert_eq!(arena.page(Pfn(0)).addr().get() % (4 << 20), 0);
    // SAFETY: the byte is in a frame of a live arena that only this test touches.
    unsafe { arena.page(Pfn(1030)).write(7) };
    let fd = arena.fd().expect("it has a file").as_raw_fd();
    let offset = arena.fd_offset() + 1030 * 4096;
    // SAFETY: no process truncates the file, because its size is sealed.
    let other = unsafe { MmapOptions::new().offset(offset).len(8192).map_mut(fd) };
    let mut other = other.expect("the file can be mapped");
    assert_eq!(other[0], 7);
    other[4096] = 9;
    // SAFETY: the byte is in a frame of a live arena, and this thread does not access the other
    // mapping during the read.
    assert_eq!(unsafe { arena.page(Pfn(1031)).read() }, 9);
    let maps = fs::read_to_string("/proc/self/maps").expect("Linux says");
    assert!(maps.contains("memfd:plimsoll-test"), "the file has a name");
}

#[test]
fn an_arena_may_have_more_frames_than_the_computer_has_memory() {
    let mode = fs::read_to_string("/proc/sys/vm/overcommit_memory");
    if mode.is_ok_and(|mode| mode.trim() == "2") {
        return; // This system charges all memory that is mapped.
    }
    let terabytes = Pages(2 << (40 - 12));
    let arena = ArenaOptions::new(terabytes).map();
    let arena = arena.expect("frames that are not touched take only address space");
    let last = arena.page(Pfn(terabytes.0 - 1));
    // SAFETY: the byte is in a frame of a live arena that only this test touches.
    unsafe { last.write(7) };
}

#[test]
fn the_file_cannot_be_truncated() {
    let arena = shared(1024);
    let fd = arena.fd().expect("it has a file");
    let file = fs::File::from(fd.try_clone_to_owned().expect("descriptors are left"));
    for bytes in [0, 1 << 30] {
        let refused = file.set_len(bytes).expect_err("the size is sealed");
        assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
    }
}

#[test]
fn frames_of_a_file_are_given_back_while_their_neighbours_stay() {
    let arena = shared(1024);
    assert_eq!(arena.resident().expect("Linux says"), Pages(0));
    arena.populate().expect("the kernel has 4 MiB");
    let full = arena.resident().expect("Linux says");
    assert!(full >= Pages(1024), "all frames have memory: {full}");
    for frame in [99, 100, 611, 612] {
        // SAFETY: the byte is in a frame of a live arena that only this test touches.
        unsafe { arena.page(Pfn(frame)).write(7) };
    }
    // SAFETY: no reference to a frame exists, and only this test touches the arena.
    let given = unsafe { arena.give_back(Pfn(100), Pages(512)) };
    given.expect("the arena has them");
    let left = arena.resident().expect("Linux says");
    assert_eq!(full.0 - left.0, 512);
    // SAFETY: the byte is in a frame of a live arena that only this test touches.
    let read = |frame| unsafe { arena.page(Pfn(frame)).read() };
    assert_eq!([99, 100, 611, 612].map(read), [7, 0, 0, 7]);
}

#[test]
fn memory_in_advance_and_huge_pages_are_options_too() {
    let options = ArenaOptions::new(Pages(1024)).huge_pages(HugePages::Refuse);
    let arena = options.populated().map().expect("the kernel has 4 MiB");
    assert_eq!(arena.resident().expect("Linux says"), Pages(1024));
    assert_eq!(arena.placement(), Placement::NotAsked);
    assert!(arena.fd().is_none());
}

#[test]
fn frames_are_bound_to_nodes_that_exist() {
    let on = |node| {
        ArenaOptions::new(Pages(2048))
            .on_node(0..1024, NodeId(node))
            .map()
    };
    let Ok(nodes) = numa::nodes_with_memory() else {
        let why = on(0).expect_err("a kernel without NUMA cannot bind");
        assert!(matches!(why, ArenaError::Bind { .. }), "{why}");
        return;
    };
    let arena = on(nodes[0].0).expect("the node exists");
    let expected = if nodes.len() == 1 {
        Placement::OneNode
    } else {
        Placement::Placed { pages: 1024 }
    };
    assert_eq!(arena.placement(), expected);
    arena.populate().expect("the kernel has 8 MiB");
    let first = arena.page(Pfn(0)).addr().get();
    if let Ok(at) = numa::locate(&[first, first + 4096]) {
        assert_eq!(at, [Some(nodes[0]); 2], "the frames are on their node");
    }

    let why = on(1023).expect_err("there are not that many nodes");
    assert!(matches!(why, ArenaError::NoSuchNode { .. }), "{why}");
    assert!(why.to_string().contains("these nodes have: "), "{why}");
    let outside = ArenaOptions::new(Pages(16))
        .on_node(10..17, NodeId(0))
        .map();
    let why = outside.expect_err("frame 16 is none of 16");
    assert!(matches!(why, ArenaError::Range { .. }), "{why}");
}

#[test]
fn shared_memory_cannot_be_zero_in_a_child() {
    let options = ArenaOptions::new(Pages(16)).memfd("plimsoll-test");
    let why = options.on_fork(OnFork::Zeroed).map();
    let why = why.expect_err("Linux wipes only private memory");
    assert!(matches!(why, ArenaError::Fork { .. }), "{why}");
    assert!(why.to_string().contains("Absent or Inherit"), "{why}");
}
