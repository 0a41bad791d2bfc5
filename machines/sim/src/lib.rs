//! Virtual CPUs in virtual time.

pub mod profile;
