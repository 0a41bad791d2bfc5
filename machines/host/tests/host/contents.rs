//! Tests of the contents of pages: a private page of a file is a copy, and a page stays in memory
//! if the store of swapped pages has no room.

use std::sync::Arc;
use std::sync::Mutex;

use plimsoll_host::Host;
use plimsoll_mm::Manager;
use plimsoll_mm::design::Design;
use plimsoll_mm::page::{Config, Layout};
use plimsoll_mm::space::object::{Object, ObjectKind};
use plimsoll_mm::space::swap::SwapSlot;
use plimsoll_mm::space::{
    Access, AddressSpace, Backing, Contents, MapRequest, Memory, NotStored, Place, Spaces,
};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Order, Pages, Pfn, Vpn};

/// A call of [`Contents`], the trait that clears, copies and swaps the contents of pages. [`Store`]
/// records these calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Clear(Pfn),
    Copy(Pfn, Pfn),
    Store(Pfn, SwapSlot),
    Refuse,
    Load(SwapSlot, Pfn),
    Forget(SwapSlot),
}

/// A store of swapped pages that has room for `room` pages and records the calls that it gets.
#[derive(Clone)]
struct Store {
    room: usize,
    calls: Arc<Mutex<Vec<Call>>>,
}

impl Store {
    fn note(&self, call: Call) {
        self.calls.lock().expect("no panic").push(call);
    }

    fn calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.calls.lock().expect("no panic"))
    }
}

impl Contents<Host> for Store {
    fn clear(&self, _: &Host, pfn: Pfn, _: Order) {
        self.note(Call::Clear(pfn));
    }

    fn copy(&self, _: &Host, from: Pfn, to: Pfn) {
        self.note(Call::Copy(from, to));
    }

    fn write_out(&self, _: &Host, pfn: Pfn, slot: SwapSlot) -> Result<(), NotStored> {
        let calls = self.calls.lock().expect("no panic");
        let stored = calls.iter().filter(|call| matches!(call, Call::Store(..)));
        let is_full = stored.count() == self.room;
        drop(calls);
        self.note(if is_full {
            Call::Refuse
        } else {
            Call::Store(pfn, slot)
        });
        if is_full { Err(NotStored) } else { Ok(()) }
    }

    fn read_in(&self, _: &Host, slot: SwapSlot, pfn: Pfn) {
        self.note(Call::Load(slot, pfn));
    }

    fn forget(&self, _: &Host, slot: SwapSlot) {
        self.note(Call::Forget(slot));
    }
}

const START: Vpn = Vpn(512);

fn with_store(room: usize, run: impl FnOnce(Memory<'_, Host>, &Store)) {
    let host = Host::with_topology(Topology::flat(1));
    let _entered = host.enter(CpuId(0));
    let mm = Manager::new(&host, Config::new(Layout::arena(Pages(256)))).expect("a layout");
    let calls = Arc::default();
    let store = Store { room, calls };
    let spaces = Spaces::new(&host, &Design::OURS, 8).expect("countable");
    let spaces = spaces.with_contents(store.clone());
    run(Memory::new(&host, &mm, &spaces), &store);
}

#[test]
fn a_page_stays_if_its_contents_cannot_be_stored() {
    with_store(1, |memory, store| {
        let host = memory.machine;
        let space = AddressSpace::new(memory).expect("there is memory");
        let request = MapRequest::anonymous(Place::Fixed(START), 3);
        space.map(memory, request).expect("nothing is there");
        let pages = START..Vpn(START.0 + 3);
        let touch = |page| {
            let touched = space.fault(memory, page, Access::Write);
            touched.expect("there is memory");
            space.frame_of(host, page).expect("it was touched")
        };
        let frames = [0, 1, 2].map(|page| touch(Vpn(START.0 + page)));
        assert_eq!(store.calls(), frames.map(Call::Clear));

        assert_eq!(space.swap_out(memory, pages), 1, "the store has one page");
        let stored = store.calls();
        let [Call::Store(frame, slot), Call::Refuse, Call::Refuse] = stored[..] else {
            panic!("{stored:?}");
        };
        assert_eq!(frame, frames[0]);
        assert_eq!(memory.spaces.swap().used(host), 1);
        let now = [0, 1, 2].map(|page| space.frame_of(host, Vpn(START.0 + page)));
        assert_eq!(now, [None, Some(frames[1]), Some(frames[2])]);

        let frame = touch(START);
        let read = [Call::Load(slot, frame), Call::Forget(slot)];
        assert_eq!(store.calls(), read);
        assert_eq!(space.swap_out(memory, START..Vpn(START.0 + 1)), 1);
        let [Call::Store(_, slot)] = store.calls()[..] else {
            panic!("the store has room again");
        };
        space.exit(memory).expect("it has not ended");
        assert_eq!(store.calls(), [Call::Forget(slot)]);
        assert_eq!(memory.spaces.swap().used(host), 0);
    });
}

#[test]
fn a_private_page_of_a_file_is_a_copy_of_the_page_of_the_file() {
    with_store(0, |memory, store| {
        let host = memory.machine;
        let space = AddressSpace::new(memory).expect("there is memory");
        let file = Arc::new(Object::new(host, ObjectKind::File));
        let request = MapRequest {
            place: Place::Fixed(START),
            pages: 1,
            backing: Backing::PrivateFile {
                file: Arc::clone(&file),
                offset: 0,
            },
        };
        space.map(memory, request).expect("nothing is there");
        let touch = |access| {
            space.fault(memory, START, access).expect("there is memory");
            space.frame_of(host, START).expect("it was touched")
        };
        let read = touch(Access::Read);
        store.calls();
        let written = touch(Access::Write);
        assert_ne!(read, written);
        assert_eq!(store.calls(), [Call::Copy(read, written)]);
        space.exit(memory).expect("it has not ended");
        file.empty(host, memory.manager.pages());
    });
}
