//! Tests what a forked child may do with the arena and the manager of its parent.
#![expect(
    unsafe_code,
    reason = "the tests fork, and read memory through pointers"
)]

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Barrier};
use std::thread;

use plimsoll_host::Host;
use plimsoll_host::arena::{Arena, ArenaOptions, OnFork};
use plimsoll_host::discard::ToKernel;
use plimsoll_host::fronts::Fronts;
use plimsoll_host::pool::Pool;
use plimsoll_host::return_free::{Pace, ReturnFree};
use plimsoll_mm::Manager;
use plimsoll_mm::machine::{Lock, Machine, RwLock};
use plimsoll_mm::page::{Config, Layout, Request};
use plimsoll_mm::site::{LockClass, Site};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Order, Pages, Pfn};

#[path = "../shared/own_areas.rs"]
mod own_areas;

/// The end of a child: its exit code, or the signal that killed it.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Exited(i32),
    Killed(i32),
}

/// Runs `child` in a forked process, which exits with the result of `child` as its exit code.
/// Returns how the process ended, and the text that it wrote to its standard error stream.
fn in_child(child: impl FnOnce() -> i32) -> (End, String) {
    let (mut reader, writer) = std::io::pipe().expect("descriptors are left");
    // SAFETY: the child only runs `child`, which calls nothing that needs other threads, and exits.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: both descriptors are open.
        unsafe { libc::dup2(writer.as_raw_fd(), 2) };
        // SAFETY: a child that hangs is killed, as the alarm has no handler.
        unsafe { libc::alarm(20) };
        let code = child();
        // SAFETY: `_exit` ends the child at once, without the exit handlers and destructors of the
        // parent.
        unsafe { libc::_exit(code) };
    }
    assert!(pid > 0, "the process can fork");
    drop(writer);
    let mut text = String::new();
    reader
        .read_to_string(&mut text)
        .expect("the child writes text");
    let mut status = 0;
    // SAFETY: `status` is a place for the status of a child of this process.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    if libc::WIFSIGNALED(status) {
        (End::Killed(libc::WTERMSIG(status)), text)
    } else {
        (End::Exited(libc::WEXITSTATUS(status)), text)
    }
}

const PAGES: Pages = Pages(4096);

fn manager(host: &Host) -> Manager<Host> {
    Manager::new(host, Config::new(Layout::arena(PAGES))).expect("a small layout")
}

fn alloc(host: &Host, manager: &Manager<Host>) -> i32 {
    let pfn = manager.pages().alloc(host, Request::new(Order::ZERO));
    i32::from(pfn.is_err())
}

fn aborts((end, text): &(End, String)) {
    assert_eq!(*end, End::Killed(libc::SIGABRT), "{text}");
    assert!(text.contains("forked from"), "{text}");
    assert!(text.contains("create a manager after the fork"), "{text}");
}

#[test]
fn a_child_that_uses_the_manager_aborts_with_a_message() {
    let host = Host::with_topology(Topology::flat(2));
    let manager = manager(&host);
    aborts(&in_child(|| alloc(&host, &manager)));
    aborts(&in_child(|| {
        let _entered = host.enter(CpuId(0));
        0
    }));
    {
        // The forking thread plays a CPU, so without the check for forks the allocation in the
        // child would take its fast path and go unnoticed.
        let _entered = host.enter(CpuId(1));
        aborts(&in_child(|| alloc(&host, &manager)));
        let outer = host.enter(CpuId(0));
        aborts(&in_child(|| {
            drop(outer);
            alloc(&host, &manager)
        }));
    }
    assert_eq!(alloc(&host, &manager), 0, "the parent goes on");
}

/// A child inherits the areas of restartable sequences, whether glibc has registered them or the
/// machine has.
#[test]
fn forks_are_noticed_without_the_areas_of_glibc() {
    if own_areas::is_second_run() {
        assert!(Fronts::Restartable.is_available());
    } else if Fronts::Restartable.is_available() {
        own_areas::run_again("forks::");
    }
}

/// A child may not use the fronts (the stacks of free pages) of its parent, which neither lock a page
/// list nor ask for the CPU. It may not empty them, either.
#[test]
fn a_child_that_uses_a_front_aborts_with_a_message() {
    let host = Host::with_topology(Topology::flat(2));
    let manager = manager(&host);
    let _entered = host.enter(CpuId(0));
    let (pages, one) = (manager.pages(), Request::new(Order::ZERO));
    let local = pages.local(&host, CpuId(0));
    let held: Vec<Pfn> = (0..20)
        .filter_map(|_| local.alloc(&host, one).ok())
        .collect();
    for &pfn in &held[1..] {
        local
            .free(&host, pfn, Order::ZERO)
            .expect("it is allocated");
    }
    aborts(&in_child(|| i32::from(local.alloc(&host, one).is_err())));
    aborts(&in_child(|| {
        i32::from(local.free(&host, held[0], Order::ZERO).is_err())
    }));
    aborts(&in_child(|| {
        pages.drain_cpu(&host, CpuId(0));
        0
    }));
    assert_eq!(local.free(&host, held[0], Order::ZERO), Ok(()));
}

#[test]
fn a_child_that_waits_for_a_lock_aborts_with_a_message() {
    let host = Host::with_topology(Topology::flat(2));
    let spinning = host.lock(LockClass::Zone, CpuId(0), ());
    let shared = host.rw_lock(LockClass::Mmap, CpuId(0), ());
    let site = Site::Control;
    let both = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            spinning.with(&host, site, |()| {
                shared.write(&host, site, |()| {
                    both.wait();
                    both.wait();
                });
            });
        });
        both.wait();
        let ends = [
            in_child(|| spinning.with(&host, site, |()| 0)),
            in_child(|| shared.read(&host, site, |()| 0)),
            in_child(|| shared.write(&host, site, |()| 0)),
            in_child(|| {
                i32::from(
                    shared
                        .read_killable(&host, site, || false, |()| ())
                        .is_some(),
                )
            }),
            in_child(|| {
                i32::from(
                    shared
                        .write_killable(&host, site, || false, |()| ())
                        .is_some(),
                )
            }),
        ];
        both.wait();
        ends.iter().for_each(aborts);
    });
}

#[test]
fn a_child_may_have_a_manager_of_its_own() {
    let host = Host::with_topology(Topology::flat(2));
    let _entered = host.enter(CpuId(1));
    let (end, text) = in_child(|| {
        let host = Host::with_topology(Topology::flat(2));
        let _entered = host.enter(CpuId(1));
        let manager = manager(&host);
        alloc(&host, &manager)
    });
    assert_eq!(end, End::Exited(0), "{text}");
}

fn written(options: ArenaOptions) -> Arena {
    let arena = options.map().expect("a little memory can be mapped");
    // SAFETY: the byte is in a frame of a live arena that only this test touches.
    unsafe { arena.page(Pfn(3)).write(7) };
    arena
}

fn read(arena: &Arena) -> i32 {
    // SAFETY: the byte is in a frame of a live arena. If the child has no memory there, it is
    // killed, as the test expects.
    i32::from(unsafe { arena.page(Pfn(3)).read_volatile() })
}

#[test]
fn a_child_sees_of_the_memory_what_the_options_say() {
    let of = |on_fork| ArenaOptions::new(Pages(1024)).on_fork(on_fork);
    let absent = written(ArenaOptions::new(Pages(1024)));
    assert_eq!(in_child(|| read(&absent)).0, End::Killed(libc::SIGSEGV));
    let zeroed = written(of(OnFork::Zeroed));
    assert_eq!(in_child(|| read(&zeroed)).0, End::Exited(0));
    for frame in [Pfn(0), Pfn(1023)] {
        // SAFETY: the byte is in a frame of a live arena that only this test touches.
        unsafe { zeroed.page(frame).write(7) };
        // SAFETY: the byte is in a frame of the arena, which the child has with other contents.
        let read = || i32::from(unsafe { zeroed.page(frame).read_volatile() });
        assert_eq!(in_child(read).0, End::Exited(0), "{frame:?}");
    }
    let copied = written(of(OnFork::Inherit));
    assert_eq!(in_child(|| read(&copied)).0, End::Exited(7));
    let shared = written(of(OnFork::Inherit).memfd("plimsoll-test"));
    let (end, _) = in_child(|| {
        // SAFETY: the byte is in a frame of a live arena, which the parent does not access while
        // the child runs.
        unsafe { shared.page(Pfn(3)).write(9) };
        0
    });
    assert_eq!(end, End::Exited(0));
    assert_eq!(read(&shared), 9, "the memory is shared");
    assert_eq!(read(&absent) + read(&zeroed) + read(&copied), 21);
}

/// Maps a page of the child's own memory at `address`, where the parent has frame 0, and writes to
/// the page.
fn reuse(address: *mut u8) -> *mut u8 {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
    let flags = flags | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: with these flags, the kernel replaces no mapping.
    let page = unsafe { libc::mmap(address.cast(), 4096, protection, flags, -1, 0) };
    assert_eq!(page.cast(), address, "the arena has left its addresses");
    // SAFETY: the page was just mapped for this function alone.
    unsafe { page.cast::<u8>().write_volatile(7) };
    page.cast()
}

#[test]
fn a_child_keeps_what_it_maps_at_the_addresses_of_the_arena() {
    for options in [
        ArenaOptions::new(Pages(1024)),
        ArenaOptions::new(Pages(1024)).memfd("plimsoll-test"),
    ] {
        let arena = options.map().expect("a little memory can be mapped");
        let (end, text) = in_child(move || {
            let own = reuse(arena.page(Pfn(0)).as_ptr());
            // SAFETY: the child has no reference to the frame.
            let given = unsafe { arena.give_back(Pfn(0), Pages(1)) };
            let refused = [given, arena.populate(), arena.resident().map(drop)];
            for refused in refused {
                let why = refused.expect_err("the child has no part of the arena");
                assert!(
                    why.to_string().contains("map an arena after the fork"),
                    "{why}"
                );
            }
            drop(arena);
            // SAFETY: the page is the child's own.
            i32::from(unsafe { own.read_volatile() })
        });
        assert_eq!(end, End::Exited(7), "{text}");
    }
}

#[test]
fn a_child_may_drop_what_has_threads() {
    let pool = Pool::builder().pages(PAGES).cpus(2).build();
    let pool = pool.expect("a small pool");
    let (end, text) = in_child(|| {
        drop(pool);
        5
    });
    assert_eq!(end, End::Exited(5), "{text}");

    let host = Host::with_topology(Topology::flat(2));
    let manager = Arc::new(manager(&host));
    let arena = ArenaOptions::new(PAGES).map();
    let arena = Arc::new(arena.expect("a little memory can be mapped"));
    // SAFETY: the test accesses no page of the arena.
    let to_kernel = unsafe { ToKernel::new(&host, arena) };
    let pace = Pace::default();
    // SAFETY: the test accesses no page of the arena.
    let returning = unsafe { ReturnFree::start(&host, manager, to_kernel, pace) };
    let returning = returning.expect("a thread can be created");
    let (end, text) = in_child(|| {
        drop(returning);
        5
    });
    assert_eq!(end, End::Exited(5), "{text}");
}

#[test]
fn the_descriptor_is_closed_by_exec() {
    let arena = ArenaOptions::new(Pages(16)).memfd("plimsoll-test").map();
    let arena = arena.expect("a little memory can be mapped");
    let fd = arena.fd().expect("it has a file");
    // SAFETY: the call only reads the flags of an open descriptor.
    let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFD) };
    assert_ne!(flags & libc::FD_CLOEXEC, 0);
    let copy: OwnedFd = fd.try_clone_to_owned().expect("descriptors are left");
    let file = File::from(copy);
    assert!(file.metadata().expect("it is open").len() >= 16 * 4096);
}
