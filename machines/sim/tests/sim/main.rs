//! Tests of the memory manager and of the simulator on simulated CPUs: laws (contracts that hold on
//! every machine), swarms (random runs), and single cases.
//!
//! They form a single test program, so that the memory manager is compiled for the simulator only
//! once.

mod bad_frees;
mod bad_loads;
mod bad_profiles;
mod cached;
mod chaos;
mod charges;
mod common;
mod counters;
mod decay;
mod disturbed;
mod dormancy;
mod drains;
mod dying;
mod emptying;
mod fallbacks;
mod fuzzed_profiles;
mod hold_prices;
mod hotplug;
mod inputs;
mod jitter;
mod late_ticks;
mod load;
mod locks;
mod marks;
mod oom_kill;
mod oom_laws;
mod oom_reap;
mod oom_swarm;
mod out_of_memory;
mod out_of_memory_kill;
mod out_of_memory_owner;
mod out_of_memory_swarm;
mod out_of_memory_wait;
mod pages;
mod phases;
mod profiles;
mod reaping;
mod reclaim;
mod reclaim_rules;
mod rw_killed;
mod rw_lock;
mod rw_swarm;
mod space_faults;
mod space_parts;
mod space_swarm;
mod speeds;
mod stacks;
mod support;
mod swarm;
mod tasks;
mod thresholds;
mod vmas;
