//! What the engine itself costs on the host.
