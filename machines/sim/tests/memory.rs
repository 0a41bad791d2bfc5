//! Tests how much host memory each virtual CPU takes. The test is a separate program, because it
//! measures the memory of the whole process.

use plimsoll_sim::bench;

#[test]
fn a_virtual_cpu_takes_at_most_16_kib() {
    for cpus in [1024, 72] {
        if let Some(bytes) = bench::resident_bytes(cpus) {
            assert!(
                bytes >= 4 << 10,
                "a task touches a page of its stack: {bytes}"
            );
            assert!(bytes <= 16 << 10, "{bytes} bytes for each of {cpus} CPUs");
        }
    }
}
