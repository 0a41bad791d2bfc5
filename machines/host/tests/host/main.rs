//! Tests of the memory manager on real CPUs: laws (contracts that hold on every machine), swarms
//! (many random runs) and other checks.
//!
//! They form a single test program, so that the memory manager is compiled for real CPUs only once.

mod auto_traits;
mod bad_counters;
mod bad_input;
mod bad_machines;
mod bad_spaces;
mod batches;
mod below_high;
mod budget;
mod cached;
mod contents;
mod counter_bounds;
mod counter_errors;
mod counter_kunit;
mod counter_local;
mod counter_many;
mod counter_props;
mod counters;
mod dying;
mod front_direct;
mod fronts;
mod gathering;
mod grouping;
mod jobs;
mod laws;
mod locks;
mod oom;
mod oom_select;
mod owed;
mod owned;
mod page_split;
mod pages;
mod pool;
mod pressed;
mod reaping;
mod reclaim;
mod rw_lock;
mod shepherd;
mod space_errors;
mod space_model;
mod space_out_of_memory;
mod space_parts;
mod space_races;
mod space_refusals;
mod space_usage;
mod space_waits;
mod space_walk;
mod support;
mod swarm;
mod texts;
mod vma_readers;
mod vma_tree;
