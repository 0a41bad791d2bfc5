//! Keeps memory on the node of the CPUs that use it: binds ranges of an arena to nodes, and moves
//! the data of each CPU to the CPU's own node.

use std::fs;
use std::io;

use plimsoll_mm::units::NodeId;

use crate::sys;
use crate::topology;

/// The nodes that have memory, in ascending order.
///
/// # Errors
/// If the kernel does not report nodes, for instance because it has no support for NUMA.
pub fn nodes_with_memory() -> io::Result<Vec<NodeId>> {
    let text = fs::read_to_string("/sys/devices/system/node/has_memory")?;
    let nodes = topology::numbers(&text).ok_or(io::ErrorKind::InvalidData)?;
    Ok(nodes.into_iter().map(NodeId).collect())
}

/// The outcome of a request for memory on certain nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// No placement was requested.
    #[default]
    NotAsked,
    /// The computer has memory on one node only, so there was nothing to do.
    OneNode,
    /// The kernel accepted the request.
    Placed {
        /// The number of pages of 4 KiB.
        pages: u64,
    },
    /// The kernel refused. Memory works as before, but may be on another node.
    Refused,
}

/// Returns the pages that an array covers, each with the node that should hold it. The array begins
/// at address `first`, and has an element of `each` bytes for each entry of `nodes`, which names
/// the element's node. A page goes to the node to which most of its bytes belong. A page is left
/// out if the array covers less than half of it.
#[must_use]
pub fn homes(first: usize, each: usize, nodes: &[NodeId]) -> Vec<(usize, NodeId)> {
    let end = first + each * nodes.len();
    let mut homes = Vec::new();
    let mut page = first - first % PAGE;
    while page < end {
        let (from, to) = (page.max(first), (page + PAGE).min(end));
        if 2 * (to - from) >= PAGE {
            let mut shares: Vec<(NodeId, usize)> = Vec::new();
            let mut at = from;
            while at < to {
                let item = (at - first) / each;
                let next = (first + (item + 1) * each).min(to);
                match shares.iter_mut().find(|(node, _)| *node == nodes[item]) {
                    Some((_, bytes)) => *bytes += next - at,
                    None => shares.push((nodes[item], next - at)),
                }
                at = next;
            }
            // If nodes have equal shares of the page, the page goes to the first of these nodes.
            let most = shares.iter().rev().max_by_key(|(_, bytes)| *bytes);
            homes.extend(most.map(|(node, _)| (page, *node)));
        }
        page += PAGE;
    }
    homes
}

/// The size of the pages in which memory is moved, in bytes.
const PAGE: usize = 4096;

/// Moves each page to its node. The memory keeps its address and contents. Returns the number of
/// pages that are on their nodes afterwards.
///
/// # Errors
/// If the kernel moves no pages, for instance because a node does not exist.
pub fn move_home(homes: &[(usize, NodeId)]) -> io::Result<u64> {
    let (pages, nodes): (Vec<usize>, Vec<i32>) = homes
        .iter()
        .map(|(page, node)| (*page, i32::try_from(node.0).unwrap_or(i32::MAX)))
        .unzip();
    let mut status = vec![0; pages.len()];
    if !pages.is_empty() {
        sys::locate_or_move(&pages, Some(&nodes), &mut status)?;
    }
    let there = status.iter().zip(&nodes).filter(|(at, node)| at == node);
    Ok(there.count() as u64)
}

/// The node of each of the pages at `addresses`; `None` for a page without memory.
///
/// # Errors
/// If the kernel does not report nodes.
pub fn locate(addresses: &[usize]) -> io::Result<Vec<Option<NodeId>>> {
    let mut status = vec![0; addresses.len()];
    sys::locate_or_move(addresses, None, &mut status)?;
    let node = |at: i32| u32::try_from(at).ok().map(NodeId);
    Ok(status.into_iter().map(node).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the nodes of eight array elements: node 0 for the first four, node 1 for the others.
    fn eight() -> Vec<NodeId> {
        (0..8).map(|cpu| NodeId(cpu / 4)).collect()
    }

    #[test]
    fn each_page_goes_to_the_node_that_has_most_of_it() {
        let first = 16 * PAGE;
        let of = |each| homes(first, each, &eight());
        let at = |page: usize, node| (first + page * PAGE, NodeId(node));
        assert_eq!(of(PAGE / 2), [at(0, 0), at(1, 0), at(2, 1), at(3, 1)]);
        // In the first page, four elements of 768 bytes belong to node 0, and the last quarter of
        // the page belongs to node 1.
        assert_eq!(of(768), [at(0, 0), at(1, 1)]);
        assert_eq!(of(2 * PAGE).len(), 16);
        assert_eq!(of(64), [], "a page that is mostly of others stays");
    }

    #[test]
    fn an_array_that_begins_inside_a_page_leaves_a_small_part_out() {
        let first = 16 * PAGE + PAGE - 128;
        let homes = homes(first, PAGE / 2, &eight());
        let nodes: Vec<u32> = homes.iter().map(|(_, node)| node.0).collect();
        assert_eq!(nodes, [0, 0, 1, 1]);
        assert_eq!(homes[0].0, 17 * PAGE);
        assert!(super::homes(first, 1, &[]).is_empty());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn pages_move_to_a_node_that_exists_and_keep_what_they_hold() {
        let Ok(nodes) = nodes_with_memory() else {
            return; // The kernel has no NUMA, so there is no node to move to.
        };
        let memory = vec![7u8; 16 * PAGE];
        let homes = homes(memory.as_ptr().addr(), PAGE, &[nodes[0]; 16]);
        assert!(homes.len() >= 15);
        match move_home(&homes) {
            Ok(there) => {
                assert_eq!(there, homes.len() as u64);
                let pages: Vec<usize> = homes.iter().map(|(page, _)| *page).collect();
                let at = locate(&pages).expect("it moves pages, so it knows them");
                assert!(at.iter().all(|at| *at == Some(nodes[0])));
            }
            // In some containers the system call that moves pages is forbidden.
            Err(why) => assert_eq!(why.kind(), io::ErrorKind::PermissionDenied, "{why}"),
        }
        assert!(memory.iter().all(|byte| *byte == 7));
    }
}
