//! Virtual CPUs in virtual time.
