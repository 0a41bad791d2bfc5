//! loom and shuttle.
