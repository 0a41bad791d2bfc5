//! Real CPUs.
