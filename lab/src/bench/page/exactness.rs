//! Tests whether memory remains fragmented after all of it was used. First counts the huge blocks
//! that an allocator can give. Then allocates all frames one by one, frees them in random order,
//! and counts the huge blocks again.

use std::thread;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::subject::{NO_BLOCK, Size, Subject};
use super::{FRAMES, HUGE};
use crate::bench::table;
use crate::report::Table;

/// Makes a table with a row for each subject (a measured allocator) that has huge blocks.
pub(super) fn table_of(subjects: &[Box<dyn Subject>]) -> Table {
    let with_huge = subjects.iter().filter(|subject| subject.has(Size::Huge));
    let rows = with_huge.map(|subject| {
        let counted = Counted::of(&**subject);
        vec![
            subject.name(),
            counted.before.to_string(),
            counted.after.to_string(),
            counted.frames.to_string(),
        ]
    });
    table(
        "Huge blocks that can be allocated, before and after all frames were freed in random order",
        &["allocator", "before", "after", "frames taken one by one"],
        rows.collect(),
    )
}

/// How many blocks and frames one subject (a measured allocator) could give.
struct Counted {
    /// The number of huge blocks that could be allocated at first.
    before: usize,
    /// The number of huge blocks that could be allocated after all frames had been freed.
    after: usize,
    /// The number of frames that could be allocated one by one.
    frames: usize,
}

impl Counted {
    fn of(subject: &dyn Subject) -> Self {
        subject.settle();
        let before = huge_blocks(subject);
        let mut frames = vec![NO_BLOCK; FRAMES.0 as usize];
        let frames = {
            let _entered = subject.enter(0);
            let failed = subject.take(Size::Page, &mut frames);
            frames.retain(|&frame| frame != NO_BLOCK);
            debug_assert_eq!(frames.len() + failed, FRAMES.0 as usize);
            frames
        };
        let mut shuffled = frames;
        shuffled.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(2));
        let (one, other) = shuffled.split_at(shuffled.len() / 2);
        thread::scope(|scope| {
            for (nth, half) in [one, other].into_iter().enumerate() {
                scope.spawn(move || {
                    let _entered = subject.enter(nth);
                    subject.give(Size::Page, half);
                });
            }
        });
        subject.settle();
        Self {
            before,
            after: huge_blocks(subject),
            frames: shuffled.len(),
        }
    }
}

/// Allocates huge blocks until an allocation fails, frees them, and returns their number.
fn huge_blocks(subject: &dyn Subject) -> usize {
    let _entered = subject.enter(0);
    let most = FRAMES.0 as usize >> HUGE;
    let mut blocks = vec![NO_BLOCK; most];
    let failed = subject.take(Size::Huge, &mut blocks);
    subject.give(Size::Huge, &blocks);
    subject.settle();
    most - failed
}
