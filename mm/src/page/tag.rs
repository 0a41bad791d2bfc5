//! Tags: the state of a page frame, in one byte.
//!
//! Only the first page of a block has a state; the others are [`TAIL`]. A page is in exactly one
//! place: on a free list, on a pcp list, in a front (a CPU's stack of free blocks), allocated, or
//! in a hole. The tag lets a double or misplaced free return an error instead of corrupting the
//! lists.

use super::mobility::Mobility;
use crate::machine::Tags;
use crate::units::Order;

/// The tag of a page inside a block that is not the block's first page.
pub(crate) const TAIL: u8 = 0;
/// The tag of a page without memory, which the zone does not manage.
pub(crate) const HOLE: u8 = 0x40;
/// The tag of the first page of a free block whose memory is being given back to the host or
/// hypervisor. Until that is done, the block is on no list.
pub(crate) const ISOLATED: u8 = 0x60;

const FREE: u8 = 0x10;
const LISTED: u8 = 0x20;
const ALLOCATED: u8 = 0x30;
/// The state of a block allocated for a request whose pages can be moved. Used only if pages are
/// grouped by mobility.
const MOVABLE: u8 = 0x50;
/// The state of a block in a front (a CPU's stack of free blocks), or on its way from there to a
/// list or to the zone.
const FRONTED: u8 = 0x70;

const STATE: u8 = 0xf0;

/// The tag of the first page of a block on the free list of `order`.
pub(crate) const fn free(order: Order) -> u8 {
    FREE | order.get()
}

/// The tag of the first page of a block of `order` on a pcp list.
pub(crate) const fn listed(order: Order) -> u8 {
    LISTED | order.get()
}

/// The tag of the first page of a block of `order` in a CPU's stack of free blocks (a front), or on
/// its way from there to a list or to the zone.
pub(crate) const fn fronted(order: Order) -> u8 {
    FRONTED | order.get()
}

/// The tag of the first page of an allocated block of `order`.
pub(crate) const fn allocated(order: Order) -> u8 {
    ALLOCATED | order.get()
}

/// The tag of the first page of a block of `order` that was allocated for movable pages.
pub(crate) const fn movable(order: Order) -> u8 {
    MOVABLE | order.get()
}

/// The tag of the first page of a block of `order` allocated for a request of `mobility`.
pub(crate) const fn handed_out(order: Order, mobility: Mobility) -> u8 {
    match mobility {
        Mobility::Movable => movable(order),
        _ => allocated(order),
    }
}

/// Returns whether the tag says that a block of `order` is allocated, or is in a CPU's stack of free
/// blocks (a front) or on its way from there.
pub(crate) const fn is_out(tag: u8, order: Order) -> bool {
    tag == allocated(order) || tag == fronted(order)
}

/// The order of the allocated block with this tag, or `None` if `tag` marks no allocated block.
pub(crate) fn allocated_order(tag: u8) -> Option<Order> {
    match tag & STATE {
        ALLOCATED | MOVABLE => Order::new(tag & !STATE),
        _ => None,
    }
}

/// The order of the free block with this tag, or `None` if `tag` marks no free block.
pub(crate) fn free_order(tag: u8) -> Option<Order> {
    order_in(FREE, tag)
}

/// The order of the block that `tag` marks, if the block was allocated for a request whose pages
/// can be moved; otherwise `None`.
pub(crate) fn movable_order(tag: u8) -> Option<Order> {
    order_in(MOVABLE, tag)
}

fn order_in(state: u8, tag: u8) -> Option<Order> {
    if tag & STATE == state {
        Order::new(tag & !STATE)
    } else {
        None
    }
}

/// Checks at compile time that the tags of a new zone mark free blocks of the largest order.
pub(crate) const fn fresh_is_free<T: Tags>() {
    assert!(
        T::FRESH_HEAD == free(Order::MAX),
        "fresh tags must read as free blocks"
    );
}
