//! A listener (Linux: an MMU notifier) is notified before a range is unmapped. It may refuse to let
//! a helper, such as the OOM reaper, empty the range. Then the next thread that empties the address
//! space empties that range.

use crate::support;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering::Relaxed};

use plimsoll_host::Host;
use plimsoll_mm::design::Design;
use plimsoll_mm::space::reap::{Reaped, Reaping};
use plimsoll_mm::space::{Access, Faulted, Flag, Notified, Refused};
use plimsoll_mm::units::{CpuId, Vpn};
use support::world::{Sizes, What, World};

/// The state that all listeners (Linux: MMU notifiers) share, with counts of their notifications.
#[derive(Default)]
struct Told {
    refusals_left: AtomicU32,
    /// The number of ranges whose notification has begun and has not ended.
    open: AtomicI32,
    started: AtomicU32,
    released: AtomicU32,
}

/// A listener, which is notified before ranges are unmapped. If `may_refuse` is true, it refuses
/// ranges for which it must not wait, and each refusal lowers `refusals_left` by 1 until this is 0.
struct Listener {
    told: Arc<Told>,
    may_refuse: bool,
}

impl Notified<Host> for Listener {
    fn start(&self, _: &Host, _: &Range<Vpn>, may_wait: bool) -> Result<(), Refused> {
        let left = &self.told.refusals_left;
        if self.may_refuse && !may_wait && left.load(Relaxed) > 0 {
            left.fetch_sub(1, Relaxed);
            return Err(Refused);
        }
        self.told.open.fetch_add(1, Relaxed);
        self.told.started.fetch_add(1, Relaxed);
        Ok(())
    }

    fn end(&self, _: &Host, _: &Range<Vpn>) {
        self.told.open.fetch_sub(1, Relaxed);
    }

    fn release(&self, _: &Host) {
        self.told.released.fetch_add(1, Relaxed);
    }
}

/// Creates a world with ten mappings, each with a separate page table and with pages in it.
fn world(reaping: Reaping, told: &Arc<Told>) -> World {
    let design = Design {
        reaping,
        ..Design::OURS
    };
    let mut world = World::new(design, Sizes::AMPLE);
    for may_refuse in [false, true] {
        let told = Arc::clone(told);
        world = world.notifying(Listener { told, may_refuse });
    }
    let entered = world.host.enter(CpuId(0));
    for nth in 0..10 {
        let what = What::Anonymous { huge: nth == 5 };
        world.map_at(512 * (2 * nth + 2), 512, what);
        let page = Vpn(512 * (2 * nth + 2) + 7);
        let faulted = world.space.fault(world.memory(), page, Access::Write);
        faulted.expect("there is memory");
    }
    drop(entered);
    world
}

#[test]
fn the_next_helper_empties_what_was_refused() {
    for reaping in Reaping::ALL {
        for refusals in [1, 3, 10] {
            let told = Arc::new(Told::default());
            let world = world(reaping, &told);
            let _entered = world.host.enter(CpuId(0));
            told.refusals_left.store(refusals, Relaxed);
            let memory = world.memory();
            assert_eq!(world.space.try_reap(memory), Reaped::Partly);
            assert!(world.space.has(&world.host, Flag::Unstable));
            let state = world.state();
            let mapped = 9 + 512;
            let left = state.rss[1];
            assert!(
                left > 0 && (left < mapped) == (refusals < 10),
                "{left} are left"
            );
            assert_eq!(
                told.open.load(Relaxed),
                0,
                "every listener that was told of a start is told of its end"
            );
            assert_eq!(world.space.try_reap(memory), Reaped::All);
            let state = world.state();
            assert_eq!((state.rss, state.used), ([0; 4], [0; 3]));
            assert_eq!(told.open.load(Relaxed), 0);
            world.end();
            assert_eq!(told.released.load(Relaxed), 2, "once each");
        }
    }
}

#[test]
fn the_last_user_asks_nobody() {
    for reaping in Reaping::ALL {
        let told = Arc::new(Told::default());
        let world = world(reaping, &told);
        let _entered = world.host.enter(CpuId(0));
        told.refusals_left.store(u32::MAX, Relaxed);
        assert_eq!(world.space.try_reap(world.memory()), Reaped::Partly);
        world.end();
        assert_eq!(told.released.load(Relaxed), 2);
    }
}

#[test]
fn whoever_holds_translations_hears_of_swap_and_of_private_copies() {
    let told = Arc::new(Told::default());
    let world = world(Reaping::MeetInTheMiddle, &told);
    let _entered = world.host.enter(CpuId(0));
    let calls = || told.started.swap(0, Relaxed);
    assert_eq!(calls(), 0, "nothing left yet");
    let (first, tables) = (512 * 2, Vpn(512 * 2)..Vpn(512 * 6));
    assert_eq!(world.space.swap_out(world.memory(), tables), 2);
    assert_eq!(calls(), 4, "two listeners, once for each of two tables");
    let page = Vpn(first + 7);
    let faulted = world.space.fault(world.memory(), page, Access::Write);
    assert_eq!(faulted, Ok(Faulted::Mapped { swapped: true }));
    assert_eq!(calls(), 0, "no translation led to pages in swap");
    world.map_at(512 * 40, 10, What::File { offset: 0 });
    let page = Vpn(512 * 40 + 3);
    for (access, heard) in [(Access::Read, 0), (Access::Write, 2), (Access::Write, 0)] {
        let before = world.space.frame_of(&world.host, page);
        let faulted = world.space.fault(world.memory(), page, access);
        faulted.expect("there is memory");
        let is_copied = before.is_some() && before != world.space.frame_of(&world.host, page);
        assert_eq!((calls(), is_copied), (heard, heard > 0), "{access:?}");
    }
    world.end();
    assert_eq!(told.open.load(Relaxed), 0);
}
