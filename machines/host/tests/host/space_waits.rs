//! Tests reaping, faults and further changes of an address space while a thread is changing its
//! mappings.

use crate::support;

use std::ops::Range;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use plimsoll_host::Host;
use plimsoll_mm::design::Design;
use plimsoll_mm::space::reap::Reaped;
use plimsoll_mm::space::{Access, FaultError, Faulted, Flag, MapError, Notified, Place, Refused};
use plimsoll_mm::units::{CpuId, Vpn};
use support::world::{Sizes, What, World};

const ANONYMOUS: What = What::Anonymous { huge: false };
const FILE: What = What::File { offset: 0 };
const SHARED: What = What::Shared { offset: 0 };

/// A listener (Linux: an MMU notifier) at which threads stop. A thread that notifies it of a range,
/// and may wait, waits first at the barrier `entered` and then at `opened`.
struct Gate {
    entered: Arc<Barrier>,
    opened: Arc<Barrier>,
}

impl Notified<Host> for Gate {
    fn start(&self, _: &Host, _: &Range<Vpn>, may_wait: bool) -> Result<(), Refused> {
        if may_wait {
            self.entered.wait();
            self.opened.wait();
        }
        Ok(())
    }

    fn end(&self, _: &Host, _: &Range<Vpn>) {}

    fn release(&self, _: &Host) {}
}

fn gated() -> (World, Arc<Barrier>, Arc<Barrier>) {
    let [entered, opened] = [(); 2].map(|()| Arc::new(Barrier::new(2)));
    let gate = Gate {
        entered: Arc::clone(&entered),
        opened: Arc::clone(&opened),
    };
    let world = World::new(Design::OURS, Sizes::AMPLE).notifying(gate);
    (world, entered, opened)
}

#[test]
fn who_was_killed_does_not_wait_for_mappings() {
    let (world, entered, opened) = gated();
    let _entered = world.host.enter(CpuId(0));
    world.map_at(100, 10, ANONYMOUS);
    world.map_at(200, 10, FILE);
    let populated = world.space.populate(world.memory(), Vpn(100)..Vpn(110));
    populated.expect("there is memory");
    thread::scope(|scope| {
        scope.spawn(|| {
            let _entered = world.host.enter(CpuId(1));
            // While this thread holds the lock of the mappings, it waits at the barriers of
            // [`Gate`].
            let replaced = world.map(Place::Replace(Vpn(105)), 1, SHARED);
            replaced.expect("nothing is in the way");
        });
        entered.wait();
        assert_eq!(world.space.try_reap(world.memory()), Reaped::Busy);
        assert!(world.space.raise(&world.host, Flag::Killed));
        let why = world.refused(|| world.map(Place::Lowest, 1, ANONYMOUS));
        assert_eq!(why, MapError::Killed);
        assert!(why.to_string().contains("killed while waiting"));
        let (memory, space) = (world.memory(), &world.space);
        let why = world.refused(|| space.unmap(memory, Vpn(100), 1));
        assert_eq!(why, MapError::Killed);
        let why = world.refused(|| space.fault(memory, Vpn(200), Access::Read));
        assert_eq!(why, FaultError::Killed);
        assert_eq!(world.space.release(world.memory(), || true), None);
        assert!(!world.space.has(&world.host, Flag::Unstable));
        opened.wait();
    });
    world.end();
}

#[test]
fn what_is_touched_in_a_new_mapping_does_not_go_with_the_old_one() {
    let (world, entered, opened) = gated();
    let _entered = world.host.enter(CpuId(0));
    world.map_at(100, 10, ANONYMOUS);
    let populated = world.space.populate(world.memory(), Vpn(100)..Vpn(105));
    populated.expect("there is memory");
    thread::scope(|scope| {
        scope.spawn(|| {
            let _entered = world.host.enter(CpuId(1));
            let replaced = world.map(Place::Replace(Vpn(90)), 30, ANONYMOUS);
            replaced.expect("nothing is in the way");
        });
        entered.wait();
        // The new mapping is already visible, but the pages of the old one have not been unmapped
        // yet.
        scope.spawn(|| {
            let _entered = world.host.enter(CpuId(0));
            for page in [92, 101] {
                let faulted = world.space.fault(world.memory(), Vpn(page), Access::Write);
                assert_eq!(faulted, Ok(Faulted::Mapped { swapped: false }));
            }
        });
        thread::sleep(Duration::from_millis(30));
        opened.wait();
    });
    for page in [92, 101] {
        let faulted = world.space.fault(world.memory(), Vpn(page), Access::Write);
        assert_eq!(faulted, Ok(Faulted::Already), "it is there to stay");
    }
    world.end();
}
