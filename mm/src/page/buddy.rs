//! Free lists of one zone: blocks of 1 to 1024 pages, split on demand and merged at once.
//!
//! A free block's buddy of the same order is never free: they would be one block. So after
//! everything came back, the zone is whole again, and a block of an order exists whenever one
//! can. Page numbers here are relative to the zone's first page.
//!
//! Locks: whoever has a `&mut Buddy` holds the zone lock. Tags of free pages change only under it.

use super::links::{Link, Links, Metadata, NONE};
use super::tag;
use crate::machine::Tags;
use crate::units::{Order, Pages};

/// The free lists of a zone.
#[derive(Debug)]
pub(crate) struct Buddy {
    lists: [List; Order::COUNT],
    links: Links,
    /// Pages of the zone, holes included: no buddy lies beyond.
    spanned: Pages,
    /// Pages on all lists.
    free: Pages,
}

/// One order's free blocks: taken from the head, the hottest.
#[derive(Clone, Copy, Debug)]
struct List {
    head: u32,
    tail: u32,
    len: u32,
}

/// Which end of its list a block goes to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// To be taken next.
    Head,
    /// To be left alone: its merging is likely.
    Tail,
}

impl Buddy {
    /// Free lists of a zone of `spanned` pages, all still unknown to it.
    pub(super) fn new(spanned: Pages, metadata: Metadata) -> Self {
        let empty = List {
            head: NONE,
            tail: NONE,
            len: 0,
        };
        Self {
            lists: [empty; Order::COUNT],
            links: Links::new(spanned, metadata),
            spanned,
            free: Pages::ZERO,
        }
    }

    /// Takes a block, splitting a larger one if there is none of `order`. Its tag says it is free
    /// until the caller changes it.
    #[inline]
    pub(super) fn take(&mut self, tags: &impl Tags, order: Order) -> Option<u32> {
        let mut found = (order.index()..Order::COUNT).find(|&at| self.lists[at].len > 0)?;
        let page = self.lists[found].head;
        self.unlink(page, order_at(found));
        while found > order.index() {
            found -= 1;
            let half = order_at(found);
            let upper = page + half.pages().0;
            tags.set(upper, tag::free(half));
            self.link(upper, half, End::Head);
        }
        self.free -= order.pages();
        Some(page)
    }

    /// Takes a block of at most `pages` pages, at least one: what taking single pages one after the
    /// other would use up next.
    pub(super) fn take_up_to(&mut self, tags: &impl Tags, pages: u32) -> Option<(u32, Order)> {
        let smallest = self.lists.iter().position(|list| list.len > 0)?;
        let fitting = order_at((pages.ilog2() as usize).min(Order::COUNT - 1));
        let order = fitting.min(order_at(smallest));
        Some((self.take(tags, order)?, order))
    }

    /// Puts a block back, merging it with every free buddy (Linux: `__free_one_page`).
    #[inline]
    pub(super) fn give(&mut self, tags: &impl Tags, mut page: u32, mut order: Order) {
        debug_assert!(
            page + order.pages().0 <= self.spanned.0,
            "the block is inside the zone"
        );
        self.free += order.pages();
        while let Some(up) = order.up() {
            let buddy = page ^ order.pages().0;
            if !self.is_free(tags, buddy, order) {
                break;
            }
            self.unlink(buddy, order);
            // The upper half is no longer a head; the lower gets its tag below.
            tags.set(page.max(buddy), tag::TAIL);
            page = page.min(buddy);
            order = up;
        }
        tags.set(page, tag::free(order));
        let end = if self.merge_is_likely(tags, page, order) {
            End::Tail
        } else {
            End::Head
        };
        self.link(page, order, end);
    }

    /// Puts a fresh block of the largest order on its list; its tag says so already.
    pub(super) fn give_fresh(&mut self, page: u32) {
        self.free += Order::MAX.pages();
        self.link(page, Order::MAX, End::Tail);
    }

    /// Pages on all lists.
    pub(crate) fn free(&self) -> Pages {
        self.free
    }

    /// Free blocks of `order` (Linux: `nr_free` in `/proc/buddyinfo`).
    pub(crate) fn blocks(&self, order: Order) -> u32 {
        self.lists[order.index()].len
    }

    /// Whether a free block of at least `order` exists.
    pub(super) fn has(&self, order: Order) -> bool {
        self.lists[order.index()..].iter().any(|list| list.len > 0)
    }

    #[inline]
    fn is_free(&self, tags: &impl Tags, page: u32, order: Order) -> bool {
        page + order.pages().0 <= self.spanned.0 && tags.get(page) == tag::free(order)
    }

    /// Whether the block that this one and its buddy would form has a free buddy: then this one
    /// will soon be part of something larger, unless somebody takes it (Linux: only below order 9).
    #[inline]
    fn merge_is_likely(&self, tags: &impl Tags, page: u32, order: Order) -> bool {
        match order.up() {
            Some(up) if up < Order::MAX => {
                let parent = page & !order.pages().0;
                self.is_free(tags, parent ^ up.pages().0, up)
            }
            _ => false,
        }
    }

    #[inline]
    fn link(&mut self, page: u32, order: Order, end: End) {
        let list = &mut self.lists[order.index()];
        list.len += 1;
        let (neighbour, link) = match end {
            End::Head => (
                list.head,
                Link {
                    prev: NONE,
                    next: list.head,
                },
            ),
            End::Tail => (
                list.tail,
                Link {
                    prev: list.tail,
                    next: NONE,
                },
            ),
        };
        let (at_head, at_tail) = (link.prev == NONE, link.next == NONE);
        if at_head {
            list.head = page;
        }
        if at_tail {
            list.tail = page;
        }
        *self.links.of(page, order) = link;
        if neighbour != NONE {
            let beside = self.links.of(neighbour, order);
            match end {
                End::Head => beside.prev = page,
                End::Tail => beside.next = page,
            }
        }
    }

    #[inline]
    fn unlink(&mut self, page: u32, order: Order) {
        let Link { prev, next } = *self.links.of(page, order);
        let list = &mut self.lists[order.index()];
        debug_assert!(list.len > 0, "a free block is on its list");
        list.len -= 1;
        if prev == NONE {
            list.head = next;
        }
        if next == NONE {
            list.tail = prev;
        }
        if prev != NONE {
            self.links.of(prev, order).next = next;
        }
        if next != NONE {
            self.links.of(next, order).prev = prev;
        }
    }
}

fn order_at(index: usize) -> Order {
    Order::new(u8::try_from(index).unwrap_or(u8::MAX)).expect("an index of the free lists")
}
