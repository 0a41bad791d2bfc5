//! The tags of pages: one byte for each page, with the state of the page.

#![expect(unsafe_code, reason = "tags in aligned lines are one slice of tags")]

#[cfg_attr(target_arch = "x86_64", path = "wide.rs")]
mod runs;

use std::array;
use std::slice;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

use plimsoll_mm::machine::Tags;
use plimsoll_mm::units::{Order, Pages};

/// The tags of all pages. Accesses are relaxed, as the trait `Tags` allows.
///
/// CPUs often hold runs of 64 pages whose first page has a number that is a multiple of 64. The tags
/// of such a run are in one cache line, so CPUs that hold neighbouring runs share no cache line.
#[derive(Debug)]
pub struct PageTags {
    lines: Box<[Line]>,
    /// The number of tags. It is at most 64 for each line.
    pages: usize,
}

/// The tags in one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
struct Line([AtomicU8; LINE_TAGS]);

const LINE_TAGS: usize = 64;

const _: () = assert!(size_of::<Line>() == LINE_TAGS, "tags have no gaps");

impl PageTags {
    pub(crate) fn new(pages: Pages) -> Self {
        let fresh = |page: usize| {
            let heads = page.is_multiple_of(Order::MAX.pages().0 as usize);
            AtomicU8::new(if heads { Self::FRESH_HEAD } else { 0 })
        };
        let line = |line| Line(array::from_fn(|nth| fresh(line * LINE_TAGS + nth)));
        let pages = pages.0 as usize;
        Self {
            lines: (0..pages.div_ceil(LINE_TAGS)).map(line).collect(),
            pages,
        }
    }

    /// Returns the tag of `page`, the byte with the state of the page.
    #[inline(always)]
    pub(crate) fn of(&self, page: u32) -> &AtomicU8 {
        &self.all()[page as usize]
    }

    /// Returns the tags of all pages.
    #[inline(always)]
    fn all(&self) -> &[AtomicU8] {
        let first = self.lines.as_ptr().cast::<AtomicU8>();
        // SAFETY: each line consists of `LINE_TAGS` tags without padding, so the lines are one
        // sequence of tags. It has at least `self.pages` tags, because `new` has divided this number
        // by `LINE_TAGS` and rounded up, and neither field changes. The tags are initialised, live
        // as long as `self`, and are only changed as atomics.
        unsafe { slice::from_raw_parts(first, self.pages) }
    }
}

impl Tags for PageTags {
    #[inline]
    fn get(&self, page: u32) -> u8 {
        self.of(page).load(Relaxed)
    }

    #[inline]
    fn set(&self, page: u32, tag: u8) {
        self.of(page).store(tag, Relaxed);
    }

    #[inline]
    fn replace(&self, page: u32, old: u8, new: u8) -> Result<(), u8> {
        self.of(page)
            .compare_exchange(old, new, Relaxed, Relaxed)
            .map(|_old| ())
    }

    #[inline]
    fn replace_while(&self, first: u32, len: u32, old: u8, new: u8) -> u32 {
        let first = first as usize;
        let tags = &self.all()[first..first + len as usize];
        u32::try_from(runs::exchange(tags, old, new)).unwrap_or(len)
    }

    #[inline]
    fn replace_run(&self, first: u32, len: u32, old: u8, new: u8) -> bool {
        let first = first as usize;
        let tags = &self.all()[first..first + len as usize];
        let are_old = runs::are_all(tags, old);
        if are_old {
            runs::set_all(tags, new);
        }
        are_old
    }
}

#[cfg(test)]
mod tests {
    use std::hint;
    use std::panic;
    use std::ptr;
    use std::sync::Barrier;
    use std::sync::atomic::AtomicU32;
    use std::thread;

    use super::*;

    #[test]
    fn fresh_tags_head_one_largest_block_after_the_other() {
        let tags = PageTags::new(Pages(2050));
        let heads: Vec<u32> = (0..2050).filter(|&page| tags.get(page) != 0).collect();
        assert_eq!(heads, [0, 1024, 2048]);
        assert_eq!(tags.get(1024), PageTags::FRESH_HEAD);
        assert_eq!(tags.replace(1, 7, 9), Err(0));
        assert_eq!(tags.replace(1, 0, 9), Ok(()));
        assert_eq!(tags.get(1), 9);
    }

    #[test]
    fn the_tags_of_64_pages_have_a_cache_line_to_themselves() {
        let tags = PageTags::new(Pages(2050));
        let addresses: Vec<usize> = (0..2050)
            .map(|page| ptr::from_ref(tags.of(page)).addr())
            .collect();
        assert!(addresses.is_sorted() && addresses[2049] - addresses[0] == 2049);
        assert_eq!(addresses[0] % 64, 0);
    }

    /// Two threads race to change each tag, as frees of the same page do. One of them succeeds.
    #[test]
    fn one_of_two_replacements_succeeds() {
        const TRIES: u32 = 10_000;
        let tags = PageTags::new(Pages(TRIES + 1));
        (1..=TRIES).for_each(|page| tags.set(page, 0));
        let arrived = AtomicU32::new(0);
        let replace_all = |new: u8| {
            let replaces = |page: &u32| {
                // Both threads get to each page at the same time.
                arrived.fetch_add(1, Relaxed);
                let mut looks = 0_u64;
                while arrived.load(Relaxed) < 2 * page {
                    looks += 1;
                    if looks.is_multiple_of(256) {
                        thread::yield_now();
                    } else {
                        hint::spin_loop();
                    }
                }
                tags.replace(*page, 0, new).is_ok()
            };
            (1..=TRIES).filter(replaces).count()
        };
        let replaced = thread::scope(|scope| {
            let other = scope.spawn(|| replace_all(1));
            replace_all(2) + other.join().expect("no panic")
        });
        assert_eq!(replaced, TRIES as usize);
    }

    #[test]
    fn the_tags_of_a_run_change_together_or_not_at_all() {
        let tags = PageTags::new(Pages(200));
        (60..135).for_each(|page| tags.set(page, 7));
        for (first, len) in [(59, 10), (60, 76), (0, 200)] {
            assert!(!tags.replace_run(first, len, 7, 9), "{first}, {len}");
        }
        assert!((60..135).all(|page| tags.get(page) == 7));
        assert!(tags.replace_run(60, 74, 7, 9));
        let changed: Vec<u32> = (0..200).filter(|&page| tags.get(page) == 9).collect();
        assert!(changed.into_iter().eq(60..134));
        assert_eq!((tags.get(59), tags.get(134)), (0, 7));
        assert!(tags.replace_run(5, 0, 7, 9), "no page has another tag");
    }

    /// Some loads and stores are of eight tags. A run may begin anywhere, and its last tags may be
    /// fewer than eight.
    #[test]
    fn each_tag_of_a_run_is_looked_at_and_changed() {
        let tags = PageTags::new(Pages(100));
        for first in 1..10 {
            for len in 1..90 {
                let run = first..first + len;
                (0..100).for_each(|page| tags.set(page, if run.contains(&page) { 7 } else { 8 }));
                for page in run.clone() {
                    tags.set(page, 6);
                    assert!(!tags.replace_run(first, len, 7, 9), "{run:?}, {page}");
                    tags.set(page, 7);
                }
                assert!(tags.replace_run(first, len, 7, 9), "{run:?}");
                let is_right = |page| tags.get(page) == if run.contains(&page) { 9 } else { 8 };
                assert!((0..100).all(is_right), "{run:?}");
            }
        }
    }

    /// The tags of a run may be exchanged eight at a time, if the run begins at a multiple of eight.
    #[test]
    fn tags_of_a_run_are_replaced_up_to_the_first_that_differs() {
        let tags = PageTags::new(Pages(100));
        for (first, len) in [(8, 0), (8, 5), (8, 64), (16, 77), (9, 30)] {
            for differs in first..=first + len {
                (0..100).for_each(|page| tags.set(page, 7));
                if differs < first + len {
                    tags.set(differs, 6);
                }
                let replaced = tags.replace_while(first, len, 7, 9);
                let most = differs - first;
                assert!(replaced <= most, "{first}, {len}, {differs}");
                assert!(
                    first % 8 > 0 || replaced + 8 > most,
                    "{first}, {len}, {differs}"
                );
                for page in 0..100 {
                    let expected = match page {
                        _ if (first..first + replaced).contains(&page) => 9,
                        _ if page == differs && differs < first + len => 6,
                        _ => 7,
                    };
                    assert_eq!(tags.get(page), expected, "{page}");
                }
            }
        }
    }

    /// Of two threads that replace the same tags at once, one by one or several at a time, one thread
    /// replaces each tag.
    #[test]
    fn each_tag_of_a_run_is_replaced_by_one_thread() {
        let tags = PageTags::new(Pages(64));
        let barrier = Barrier::new(2);
        let replaced = AtomicU32::new(0);
        let replace_all = |singly: bool| {
            for _ in 0..2000 {
                barrier.wait();
                let done = if singly {
                    0
                } else {
                    tags.replace_while(0, 64, 0x70, 0x20)
                };
                let rest = (done..64).filter(|&page| tags.replace(page, 0x70, 0x20).is_ok());
                let rest = u32::try_from(rest.count()).expect("few");
                replaced.fetch_add(done + rest, Relaxed);
                if barrier.wait().is_leader() {
                    assert_eq!(replaced.swap(0, Relaxed), 64);
                    (0..64).for_each(|page| tags.set(page, 0x70));
                }
            }
        };
        (0..64).for_each(|page| tags.set(page, 0x70));
        thread::scope(|scope| {
            scope.spawn(|| replace_all(false));
            replace_all(true);
        });
    }

    #[test]
    fn there_are_no_more_tags_than_pages() {
        let tags = PageTags::new(Pages(70));
        panic::catch_unwind(|| tags.get(70)).unwrap_err();
        panic::catch_unwind(|| PageTags::new(Pages(0)).get(0)).unwrap_err();
    }
}
