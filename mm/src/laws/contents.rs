//! A law (a test for threads, model checkers and the simulator) of the contents of a page: they
//! survive a move to swap and back while a virtual machine uses the page through translations of
//! its own.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use core::fmt;
use core::ops::Range;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use super::{Body, Law};
use crate::design::Design;
use crate::machine::{Lock, Machine, Word};
use crate::manager::Manager;
use crate::page::{Config, Layout};
use crate::site::{LockClass, Site};
use crate::space::swap::SwapSlot;
use crate::space::{
    Access, AddressSpace, Contents, Discard, MapRequest, Memory, NotStored, Notified, Place,
    Refused, Spaces,
};
use crate::units::{Order, Pages, Pfn, Vpn};

/// The number of pages of the machine.
const ARENA: u32 = 64;
/// The number of slots of swap.
const SLOTS: u32 = 2;
/// The only page of the address space.
const PAGE: Vpn = Vpn(512);
/// The amount that the set-up adds to the contents of [`PAGE`]. CPUs later add more.
const WRITTEN: i64 = 1000;
/// The number that a frame or a swap slot holds when it has no contents.
const FREED: i64 = -1;

/// The contents of every frame and every swap slot, each as one number. Also what the holder of
/// translations (Linux: an MMU notifier) knows about the tested page.
pub struct Bytes<M: Machine> {
    frames: Box<[M::Word]>,
    slots: Box<[M::Word]>,
    known: M::Lock<Known>,
}

/// What the holder of translations (Linux: an MMU notifier) knows: the page's frame, and how many
/// notifications the holder got.
#[derive(Default)]
struct Known {
    frame: Option<Pfn>,
    /// The number of notifications that have begun. Each notification made the holder forget the
    /// frame.
    told: u64,
    /// The number of notifications that have begun and not ended.
    open: u32,
}

impl<M: Machine> fmt::Debug for Bytes<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bytes").finish_non_exhaustive()
    }
}

impl<M: Machine> Bytes<M> {
    fn known<R>(&self, machine: &M, look: impl FnOnce(&mut Known) -> R) -> R {
        self.known.with(machine, Site::Control, look)
    }

    fn begin(&self, machine: &M) {
        self.known(machine, |known| {
            known.told += 1;
            known.open += 1;
            known.frame = None;
        });
    }
}

/// The embedder, which stores the contents. It is also the holder of translations (Linux: an MMU
/// notifier).
struct Embedder<M: Machine>(Arc<Bytes<M>>);

impl<M: Machine> Contents<M> for Embedder<M>
where
    Bytes<M>: Send + Sync,
{
    fn clear(&self, machine: &M, pfn: Pfn, _: Order) {
        self.0.frames[pfn.0 as usize].store(machine, 0, Release);
    }

    fn copy(&self, _: &M, _: Pfn, _: Pfn) {
        unreachable!("no page of a file is mapped");
    }

    fn write_out(&self, machine: &M, pfn: Pfn, SwapSlot(slot): SwapSlot) -> Result<(), NotStored> {
        let now = self.0.frames[pfn.0 as usize].load(machine, Acquire);
        assert_ne!(now, FREED, "a page is written out before it is freed");
        let before = self.0.slots[slot as usize].swap(machine, now, AcqRel);
        assert_eq!(before, FREED, "the former contents were forgotten");
        Ok(())
    }

    fn read_in(&self, machine: &M, SwapSlot(slot): SwapSlot, pfn: Pfn) {
        let now = self.0.slots[slot as usize].load(machine, Acquire);
        assert_ne!(now, FREED, "contents are read in before they are forgotten");
        self.0.frames[pfn.0 as usize].store(machine, now, Release);
    }

    fn forget(&self, machine: &M, SwapSlot(slot): SwapSlot) {
        let before = self.0.slots[slot as usize].swap(machine, FREED, AcqRel);
        assert_ne!(before, FREED, "contents are forgotten once");
    }
}

impl<M: Machine> Discard<M> for Embedder<M>
where
    Bytes<M>: Send + Sync,
{
    fn discard(&self, machine: &M, pfns: &[Pfn], _: Order) {
        let frame = self.0.known(machine, |known| known.frame);
        for &pfn in pfns {
            assert_ne!(
                frame,
                Some(pfn),
                "no page is freed before its translation is invalid"
            );
            self.0.frames[pfn.0 as usize].store(machine, FREED, Release);
        }
    }
}

impl<M: Machine> Notified<M> for Embedder<M>
where
    Bytes<M>: Send + Sync,
{
    fn start(&self, machine: &M, pages: &Range<Vpn>, _: bool) -> Result<(), Refused> {
        assert!(pages.contains(&PAGE), "there is no other page");
        self.0.begin(machine);
        Ok(())
    }

    fn end(&self, machine: &M, _: &Range<Vpn>) {
        self.0.known(machine, |known| known.open -= 1);
    }

    fn release(&self, machine: &M) {
        self.0.begin(machine);
    }
}

/// The state of the test: an address space of one page, which a virtual machine uses, and
/// everything else that the test needs.
pub struct Guest<M: Machine> {
    manager: Manager<M>,
    spaces: Spaces<M>,
    space: AddressSpace<M>,
    bytes: Arc<Bytes<M>>,
    /// The sum of all amounts that were added to the contents of the page.
    added: M::Word,
}

impl<M: Machine> fmt::Debug for Guest<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guest").finish_non_exhaustive()
    }
}

impl<M: Machine> Guest<M>
where
    Bytes<M>: Send + Sync + 'static,
{
    fn new(machine: &M) -> Self {
        let words = |count| (0..count).map(|_| machine.word(FREED)).collect();
        let home = machine.this_cpu();
        let bytes = Arc::new(Bytes {
            frames: words(ARENA),
            slots: words(SLOTS),
            known: machine.lock(LockClass::Counter, home, Known::default()),
        });
        let embedder = || Embedder(Arc::clone(&bytes));
        let config = Config::new(Layout::arena(Pages(ARENA)));
        let manager = Manager::new(machine, config).expect("a small arena is a layout");
        let spaces = Spaces::new(machine, &Design::OURS, SLOTS);
        let spaces = spaces.expect("few pages can be counted");
        let spaces = spaces.with_contents(embedder()).discarding(embedder());
        let memory = Memory::new(machine, &manager, &spaces);
        let space = AddressSpace::new(memory).expect("there is memory");
        let space = space.notifying(embedder());
        let request = MapRequest::anonymous(Place::Fixed(PAGE), 1);
        space.map(memory, request).expect("nothing is in the way");
        let guest = Self {
            space,
            manager,
            spaces,
            bytes,
            added: machine.word(0),
        };
        guest.add(machine, WRITTEN);
        guest
    }

    fn memory<'m>(&'m self, machine: &'m M) -> Memory<'m, M> {
        Memory::new(machine, &self.manager, &self.spaces)
    }

    /// Adds `amount` to the contents of the page, through a translation to its frame. Does nothing
    /// if the page is moved at the same time, because no CPU of the test may wait for another CPU.
    fn add(&self, machine: &M, amount: i64) {
        let told = self.bytes.known(machine, |known| known.told);
        let touched = self.space.fault(self.memory(machine), PAGE, Access::Write);
        touched.expect("there are pages");
        let Some(frame) = self.space.frame_of(machine, PAGE) else {
            return;
        };
        self.bytes.known(machine, |known| {
            if known.told != told || known.open > 0 {
                return;
            }
            known.frame = Some(frame);
            let word = &self.bytes.frames[frame.0 as usize];
            let before = word.add(machine, amount, AcqRel) - amount;
            let expected = self.added.add(machine, amount, AcqRel) - amount;
            assert_eq!(before, expected, "the page has kept its contents");
        });
    }

    fn move_out(&self, machine: &M) {
        let pages = PAGE..Vpn(PAGE.0 + 1);
        self.space.swap_out(self.memory(machine), pages);
    }

    /// Asserts that the page has kept its contents and that no page is lost.
    fn has_kept_all(&self, machine: &M) {
        let before = self.added.load(machine, Acquire);
        self.add(machine, 1);
        let after = self.added.load(machine, Acquire);
        assert_eq!(after, before + 1, "no other CPU moved the page");
        self.move_out(machine);
        assert_eq!(self.spaces.swap().used(machine), 1, "the page is in swap");
        let ended = self.space.exit(self.memory(machine));
        ended.expect("it has not ended before");
        assert_eq!(self.spaces.swap().used(machine), 0, "every slot is free");
        for slot in &self.bytes.slots {
            let now = slot.load(machine, Acquire);
            assert_eq!(now, FREED, "contents of unmapped pages are forgotten");
        }
        self.manager.pages().drain_all_sync(machine);
        let zone = &self.manager.pages().view(machine)[0];
        assert_eq!(zone.free, Pages(ARENA), "every page is free");
    }
}

/// A page moves to swap while two CPUs write to it through translations of a virtual machine. The
/// page keeps its contents.
#[must_use]
pub fn moving_while_writing<M: Machine>() -> Law<M, Guest<M>>
where
    Bytes<M>: Send + Sync + 'static,
{
    let write: Body<M, Guest<M>> = |machine, guest| guest.add(machine, 1);
    Law {
        name: "a page keeps its contents in swap, and is freed after its translation is invalid",
        setup: Guest::new,
        bodies: vec![write, write, |machine, guest| {
            guest.move_out(machine);
            guest.move_out(machine);
        }],
        check: |machine, guest| guest.has_kept_all(machine),
    }
}
