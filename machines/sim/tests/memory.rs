//! What a virtual CPU takes of the host's memory. Alone in its process: it looks at all of it.

use plimsoll_sim::bench;

#[test]
fn a_virtual_cpu_takes_at_most_16_kib() {
    for cpus in [1024, 72] {
        if let Some(bytes) = bench::resident_bytes(cpus) {
            assert!(bytes <= 16 << 10, "{bytes} bytes for each of {cpus} CPUs");
        }
    }
}
