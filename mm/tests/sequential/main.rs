//! Tests of the page allocator with one thread that plays several CPUs in turn, so that every step
//! of another CPU happens at the place that the test chooses.

#[path = "../support/front.rs"]
mod front;
#[expect(dead_code, reason = "only the locks are recorded")]
#[path = "../support/heap.rs"]
mod heap;
#[expect(dead_code, reason = "no job runs and no time passes")]
#[path = "../support/machine.rs"]
mod machine;
#[path = "../support/watch.rs"]
mod watch;

mod bitmaps;
mod front_direct;
mod front_direct_disturbed;
mod front_direct_late;
mod front_direct_limits;
mod front_direct_props;
mod front_direct_words;
mod front_huge;
mod front_huge_frees;
mod front_huge_moves;
mod front_long;
mod front_sizes;
mod fronts;
mod owned_cpus;
mod owned_zone;
mod owning;
mod resizing;
