//! The CPUs of a profile. The profile of a regular machine gives counts; the profile of an
//! irregular machine lists clusters (groups of equal cores).
//!
//! CPUs are numbered as Linux numbers them on x86. The first threads of all cores come first,
//! ordered by socket, node, cache and core; the second threads of all cores follow.

use plimsoll_mm::topology::{CpuPlace, NODES_MAX, Topology};
use plimsoll_mm::units::NodeId;

use super::error::ProfileError;
use super::read::Section;
use super::speed::{self, Cluster};

/// The most CPUs of a machine. A larger number is assumed to be a typing error.
const CPUS_MAX: u64 = 4096;

/// The highest id of a last-level cache, because the simulator packs the id into 16 bits.
const LLC_MAX: u32 = 0xffff;

/// One physical core, before it is divided into CPUs.
#[derive(Clone, Copy, Debug)]
struct Core {
    smt: u32,
    llc: u32,
    node: u32,
    socket: u32,
    /// The number of the core's cluster; 0 if the profile has none.
    cluster: usize,
}

/// Reads the `[topology]` table: the CPUs, and the clusters if the table lists any.
pub(super) fn read(section: &Section<'_>) -> Result<(Topology, Vec<Cluster>), ProfileError> {
    let (cores, mut clusters) = match section.get("cluster") {
        Some(_) => clusters(section)?,
        None => (counts(section)?, Vec::new()),
    };
    check(section, &cores)?;
    let topology = number(&cores);
    for cpu in topology.ids() {
        let core = cores[topology.place(cpu).core as usize];
        if let Some(cluster) = clusters.get_mut(core.cluster) {
            cluster.cpus.push(cpu);
        }
    }
    Ok((topology, clusters))
}

fn counts(section: &Section<'_>) -> Result<Vec<Core>, ProfileError> {
    section.only(&[
        "sockets",
        "nodes_per_socket",
        "llcs_per_node",
        "cores_per_node",
        "cores_per_llc",
        "smt",
        "cluster",
    ])?;
    let sockets = count(section, "sockets", Some(1))?;
    let nodes_per_socket = count(section, "nodes_per_socket", Some(1))?;
    let cores_per_llc = count(section, "cores_per_llc", None)?;
    let smt = count(section, "smt", Some(1))?;
    let cores_per_node = match (section.get("llcs_per_node"), section.get("cores_per_node")) {
        (Some(_), Some(both)) => {
            return Err(both.absurd("give this or llcs_per_node, not both".to_owned()));
        }
        (None, Some(_)) => count(section, "cores_per_node", None)?,
        (_, None) => {
            let llcs = count(section, "llcs_per_node", Some(1))?;
            llcs.saturating_mul(cores_per_llc)
        }
    };
    let llcs_per_node = cores_per_node.div_ceil(cores_per_llc);
    let nodes = sockets.saturating_mul(nodes_per_socket);
    // The product of three 32-bit numbers may exceed 64 bits, and wrapping could make it look
    // small.
    let cores = u64::from(nodes) * u64::from(cores_per_node);
    let cpus = cores.saturating_mul(u64::from(smt));
    limit(section, cpus)?;
    if nodes > NODES_MAX {
        return Err(section.absurd("sockets", too_many_nodes(nodes.into())));
    }
    let core = |node: u32, nth: u32| Core {
        smt,
        llc: node * llcs_per_node + nth / cores_per_llc,
        node,
        socket: node / nodes_per_socket,
        cluster: 0,
    };
    Ok((0..nodes)
        .flat_map(|node| (0..cores_per_node).map(move |nth| core(node, nth)))
        .collect())
}

/// Reads the cores and the clusters. The clusters list no CPUs yet, because CPUs are numbered
/// later.
fn clusters(section: &Section<'_>) -> Result<(Vec<Core>, Vec<Cluster>), ProfileError> {
    const LIST: &str = "write [[topology.cluster]] once for each kind of core";
    section.only(&["cluster"]).map_err(|mut error| {
        error.problem = super::Problem::Absurd("counts and clusters cannot be mixed".to_owned());
        error
    })?;
    let value = section.need("cluster", LIST)?;
    let list = value.list().ok_or_else(|| value.absurd(LIST.to_owned()))?;
    let (mut cores, mut clusters, mut cpus) = (Vec::new(), Vec::new(), 0);
    for cluster in list {
        let cluster = cluster.section(LIST)?;
        cluster.only(&["name", "cores", "smt", "llc", "node", "socket", "speed"])?;
        let name = cluster
            .need("name", "write what this kind of core is called")?
            .text("write a name")?;
        let count_here = count(&cluster, "cores", None)?;
        let core = Core {
            smt: count(&cluster, "smt", Some(1))?,
            llc: llc(&cluster)?,
            node: cluster.get("node").map_or(Ok(0), |node| node.number())?,
            socket: cluster
                .get("socket")
                .map_or(Ok(0), |socket| socket.number())?,
            cluster: clusters.len(),
        };
        cpus = u64::from(count_here)
            .saturating_mul(u64::from(core.smt))
            .saturating_add(cpus);
        limit(&cluster, cpus)?;
        cores.extend(std::iter::repeat_n(core, count_here as usize));
        clusters.push(Cluster {
            name: name.to_owned(),
            cpus: Vec::new(),
            speed: speed::read(&cluster)?,
        });
    }
    Ok((cores, clusters))
}

/// Reads the number that identifies the last-level cache of a cluster.
fn llc(cluster: &Section<'_>) -> Result<u32, ProfileError> {
    let value = cluster.need("llc", "write the number of its last-level cache")?;
    let number = value.number()?;
    if number > LLC_MAX {
        return Err(value.absurd(format!(
            "{number} is too high; number caches from 0 to {LLC_MAX}"
        )));
    }
    Ok(number)
}

/// Reads the count `key`, which must be at least 1. If the key is missing, returns `default`; if
/// there is no default either, returns an error.
fn count(section: &Section<'_>, key: &str, default: Option<u32>) -> Result<u32, ProfileError> {
    let value = match (section.get(key), default) {
        (Some(value), _) => value,
        (None, Some(default)) => return Ok(default),
        (None, None) => return Err(section.missing(key, "write how many, at least 1")),
    };
    match value.number()? {
        0 => Err(value.absurd("0 leaves no CPU; write at least 1".to_owned())),
        count => Ok(count),
    }
}

fn limit(section: &Section<'_>, cpus: u64) -> Result<(), ProfileError> {
    if (1..=CPUS_MAX).contains(&cpus) {
        return Ok(());
    }
    let key = if section.get("cores_per_llc").is_some() {
        "cores_per_llc"
    } else {
        "cores"
    };
    Err(section.absurd(
        key,
        format!("makes {cpus} CPUs; a machine has 1 to {CPUS_MAX}"),
    ))
}

fn too_many_nodes(nodes: u64) -> String {
    format!("makes {nodes} nodes; a machine has at most {NODES_MAX}")
}

fn check(section: &Section<'_>, cores: &[Core]) -> Result<(), ProfileError> {
    let absurd = |why: String| Err(section.absurd("cluster", why));
    let cpus: u64 = cores.iter().map(|core| u64::from(core.smt)).sum();
    if !(1..=CPUS_MAX).contains(&cpus) {
        return absurd(format!("makes {cpus} CPUs; a machine has 1 to {CPUS_MAX}"));
    }
    // Every node needs a core. If there are more nodes than cores, some node among the first
    // `cores.len() + 1` has none. So the loop over nodes need not go further, however high the
    // highest node number is.
    let nodes = cores
        .iter()
        .map(|core| u64::from(core.node) + 1)
        .max()
        .unwrap_or(0);
    if nodes > u64::from(NODES_MAX) && nodes <= cores.len() as u64 {
        return absurd(too_many_nodes(nodes));
    }
    for node in 0..nodes.min(cores.len() as u64 + 1) {
        if !cores.iter().any(|core| u64::from(core.node) == node) {
            return absurd(format!(
                "no core is on node {node}; number nodes from 0 without holes"
            ));
        }
    }
    for (nth, core) in cores.iter().enumerate() {
        let split = cores[..nth]
            .iter()
            .find(|o| o.llc == core.llc && o.socket != core.socket);
        if split.is_some() {
            return absurd(format!(
                "cache {} is on two sockets; give each socket its own cache",
                core.llc
            ));
        }
        let split = cores[..nth]
            .iter()
            .find(|o| o.node == core.node && o.socket != core.socket);
        if split.is_some() {
            return absurd(format!(
                "node {} is on two sockets; give each socket its own node",
                core.node
            ));
        }
    }
    Ok(())
}

fn number(cores: &[Core]) -> Topology {
    let threads = cores.iter().map(|core| core.smt).max().unwrap_or(0);
    let place = |(core, at): (u32, &Core)| CpuPlace {
        core,
        llc: at.llc,
        node: NodeId(at.node),
        socket: at.socket,
    };
    let round = |thread| {
        (0..)
            .zip(cores)
            .filter(move |(_, at)| at.smt > thread)
            .map(place)
    };
    Topology::new((0..threads).flat_map(round).collect())
}
