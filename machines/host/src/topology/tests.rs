//! Tests that topologies are read correctly, from directories with files as in Linux'
//! `/sys/devices/system`.

use std::{env, fs, process};

use plimsoll_mm::topology::Distance;
use plimsoll_mm::units::CpuId;

use super::*;

/// A temporary directory with the files of one machine; dropping the value removes the directory.
struct Fixture(PathBuf);

impl Fixture {
    fn new(name: &str) -> Self {
        let root = env::temp_dir().join(format!("plimsoll-topology-{name}-{}", process::id()));
        Self(root)
    }

    fn file(self, path: &str, text: &str) -> Self {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().expect("it is inside the fixture")).expect("writable");
        fs::write(path, text).expect("writable");
        self
    }

    fn cpu(self, cpu: u32, package: &str, core: &str, llc: &str) -> Self {
        let folder = format!("cpu/cpu{cpu}");
        self.file(&format!("{folder}/topology/physical_package_id"), package)
            .file(&format!("{folder}/topology/core_id"), core)
            .file(&format!("{folder}/cache/index0/level"), "1\n")
            .file(
                &format!("{folder}/cache/index0/shared_cpu_list"),
                &format!("{cpu}\n"),
            )
            .file(&format!("{folder}/cache/index1/level"), "3\n")
            .file(&format!("{folder}/cache/index1/shared_cpu_list"), llc)
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn two_sockets_with_smt_two_caches_and_two_nodes() {
    let fixture = Fixture::new("two-sockets")
        .file("cpu/possible", "0-7\n")
        .cpu(0, "0\n", "0\n", "0,4\n")
        .cpu(1, "0\n", "1\n", "1,5\n")
        .cpu(2, "1\n", "0\n", "2-3,6-7\n")
        .cpu(3, "1\n", "1\n", "2-3,6-7\n")
        .cpu(4, "0\n", "0\n", "0,4\n")
        .cpu(5, "0\n", "1\n", "1,5\n")
        .cpu(6, "1\n", "0\n", "2-3,6-7\n")
        .cpu(7, "1\n", "1\n", "2-3,6-7\n")
        .file("node/node0/cpulist", "0-1,4-5\n")
        .file("node/node1/cpulist", "2-3,6-7\n")
        .file("node/node2/cpulist", "\n")
        .file("node/possible", "0-2\n");
    let topology = read_from(&fixture.0).expect("it is well formed");
    assert_eq!(topology.cpus(), 8);
    let from_0: Vec<_> = topology
        .ids()
        .map(|cpu| topology.distance(CpuId(0), cpu))
        .collect();
    let (socket, remote) = (Distance::Socket, Distance::Remote);
    let expected = [
        Distance::Same,
        socket,
        remote,
        remote,
        Distance::Core,
        socket,
        remote,
        remote,
    ];
    assert_eq!(from_0, expected);
    assert_eq!(topology.distance(CpuId(2), CpuId(3)), Distance::Llc);
    assert_eq!(topology.nodes(), 2);
    assert_eq!(topology.place(CpuId(6)).node, NodeId(1));
}

#[test]
fn holes_and_offline_cpus_keep_their_ids() {
    let fixture = Fixture::new("holes")
        .file("cpu/possible", "0,2-3\n")
        .cpu(0, "7\n", "0\n", "0,3\n")
        .cpu(3, "7\n", "4\n", "0,3\n")
        .file("node/node0/cpulist", "0,3,900\n");
    let topology = read_from(&fixture.0).expect("CPU 2 is offline, which is no error");
    assert_eq!(topology.cpus(), 4);
    assert_eq!(topology.distance(CpuId(0), CpuId(3)), Distance::Llc);
    assert_eq!(topology.distance(CpuId(0), CpuId(2)), Distance::Socket);
    assert_eq!(topology.distance(CpuId(1), CpuId(2)), Distance::Socket);
}

#[test]
fn a_guest_without_caches_nodes_or_package_ids_is_one_socket() {
    let fixture = Fixture::new("guest")
        .file("cpu/possible", "0-1")
        .file("cpu/cpu0/topology/physical_package_id", "-1\n")
        .file("cpu/cpu0/topology/core_id", "0\n")
        .file("cpu/cpu1/topology/physical_package_id", "-1\n")
        .file("cpu/cpu1/topology/core_id", "1\n");
    assert_eq!(
        read_from(&fixture.0).expect("little is enough"),
        Topology::flat(2)
    );
}

#[test]
fn an_error_names_the_file_and_what_it_says() {
    let missing = read_from(&Fixture::new("missing").0).expect_err("there is no file");
    assert!(matches!(&missing, TopologyError::Read { path, .. } if path.ends_with("cpu/possible")));

    let fixture = Fixture::new("garbled")
        .file("cpu/possible", "0-1\n")
        .cpu(0, "0\n", "x\n", "0\n");
    let garbled = read_from(&fixture.0).expect_err("a core is a number");
    assert!(
        garbled
            .to_string()
            .ends_with("core_id should be a number, but is \"x\""),
        "{garbled}"
    );

    let fixture = Fixture::new("none").file("cpu/possible", "\n");
    assert!(matches!(
        read_from(&fixture.0),
        Err(TopologyError::Parse { .. })
    ));
}

#[test]
fn this_computer_has_cpus() {
    assert!(read_or_flat().cpus() >= 1);
}
