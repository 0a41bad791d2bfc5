//! A free list: a doubly linked list of free blocks, whose links are in the zone's [`Links`].

use crate::page::links::{Link, Links, NONE};
use crate::units::Order;

/// A list of blocks. Blocks are taken from the head, where the hottest blocks are.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    pub(super) head: u32,
    tail: u32,
    /// The number of blocks on the list.
    pub(super) len: u32,
}

/// The end of a list at which a block is inserted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The end from which blocks are taken. A block inserted here is taken next.
    Head,
    /// The end from which blocks are taken last. It is for a block that is likely to merge soon.
    Tail,
}

impl List {
    pub(super) const EMPTY: Self = Self {
        head: NONE,
        tail: NONE,
        len: 0,
    };

    /// Inserts the block at `page`. `order` says which link record the block has, and is the same
    /// for all blocks of a list.
    #[inline]
    pub(super) fn insert(&mut self, links: &mut Links, page: u32, order: Order, end: End) {
        self.len += 1;
        let (neighbour, link) = match end {
            End::Head => (
                self.head,
                Link {
                    prev: NONE,
                    next: self.head,
                },
            ),
            End::Tail => (
                self.tail,
                Link {
                    prev: self.tail,
                    next: NONE,
                },
            ),
        };
        let (at_head, at_tail) = (link.prev == NONE, link.next == NONE);
        if at_head {
            self.head = page;
        }
        if at_tail {
            self.tail = page;
        }
        *links.of(page, order) = link;
        if neighbour != NONE {
            let beside = links.of(neighbour, order);
            match end {
                End::Head => beside.prev = page,
                End::Tail => beside.next = page,
            }
        }
    }

    /// Removes the block at `page`, which is on this list.
    #[inline]
    pub(super) fn remove(&mut self, links: &mut Links, page: u32, order: Order) {
        let Link { prev, next } = *links.of(page, order);
        debug_assert!(self.len > 0, "a free block is on its list");
        self.len -= 1;
        if prev == NONE {
            self.head = next;
        }
        if next == NONE {
            self.tail = prev;
        }
        if prev != NONE {
            links.of(prev, order).next = next;
        }
        if next != NONE {
            links.of(next, order).prev = prev;
        }
    }
}
