//! The processes other than the victim. They use all memory that the victim does not use.

use std::cell::RefCell;
use std::rc::Rc;

use plimsoll_mm::page::Request;
use plimsoll_mm::page::watermark::Urgency;
use plimsoll_mm::units::{CpuId, Order, Pfn};

use crate::run::testbed::Testbed;

/// The blocks of memory that the processes other than the victim use.
#[derive(Default)]
pub(super) struct Others {
    blocks: Vec<(Pfn, Order)>,
}

/// The order of the smallest blocks to allocate. Smaller blocks would pass through the CPU's page
/// lists, which must remain as the victim left them.
const SMALLEST: u8 = 4;

impl Others {
    /// Allocates blocks on `cpu`, until each zone is at its low watermark and no more blocks can be
    /// allocated without waiting.
    pub(super) fn take_all(testbed: &Testbed, cpu: CpuId) -> Self {
        let blocks: Rc<RefCell<Vec<(Pfn, Order)>>> = Rc::default();
        let (taken, mm) = (Rc::clone(&blocks), Rc::clone(&testbed.mm));
        testbed.sim.spawn(cpu, move |sim| {
            for order in (SMALLEST..=Order::MAX.get()).rev() {
                let order = Order::new(order).expect("up to the largest");
                let request = Request::new(order).urgent(Urgency::NoWait);
                while let Ok(block) = mm.pages().alloc(sim, request) {
                    taken.borrow_mut().push((block, order));
                }
            }
        });
        testbed.sim.run();
        Self {
            blocks: blocks.take(),
        }
    }

    /// Frees all blocks.
    pub(super) fn give_back(self, testbed: &Testbed) {
        for (block, order) in self.blocks {
            let freed = testbed.mm.pages().free(&testbed.sim, block, order);
            freed.expect("blocks go back once, as they came");
        }
    }
}
