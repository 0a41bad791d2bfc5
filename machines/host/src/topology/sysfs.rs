//! Reads the files of sysfs that describe CPUs and nodes: `cpu/possible`, `cpu/cpu*/topology`,
//! `cpu/cpu*/cache` and `node/node*/cpulist`.
//!
//! A CPU without a `topology` directory is offline. Caches and nodes may be missing altogether, as
//! in some virtual machines. A file that exists but cannot be parsed is an error.

use std::path::{Path, PathBuf};
use std::{fs, io};

use super::{Described, TopologyError, list};

/// The maximum number of cache directories that are read. Linux creates no more than this on any
/// machine.
const CACHES_MAX: u32 = 16;

/// Reads the description of every possible CPU, indexed by id. The entry of a CPU that is not
/// described is `None`.
pub(super) fn describe(root: &Path) -> Result<Vec<Option<Described>>, TopologyError> {
    let path = root.join("cpu/possible");
    let possible = parse(
        &path,
        &read(&path)?,
        "a list of CPUs such as 0-7",
        list::cpus,
    )?;
    let Some(&last) = possible.iter().max() else {
        let expected = "at least one CPU";
        return Err(TopologyError::Parse {
            path,
            text: String::new(),
            expected,
        });
    };
    let mut cpus = vec![None; last as usize + 1];
    for cpu in possible {
        cpus[cpu as usize] = describe_cpu(&root.join(format!("cpu/cpu{cpu}")))?;
    }
    for (node, members) in nodes(root)? {
        for cpu in members {
            if let Some(Some(described)) = cpus.get_mut(cpu as usize) {
                described.node = node;
            }
        }
    }
    Ok(cpus)
}

fn describe_cpu(folder: &Path) -> Result<Option<Described>, TopologyError> {
    let topology = folder.join("topology");
    if !topology.is_dir() {
        return Ok(None);
    }
    Ok(Some(Described {
        package: parse_file(&topology.join("physical_package_id"))?,
        // The file `die_id` exists since Linux 5.2.
        die: parse_file_if_any(&topology.join("die_id"))?.unwrap_or(0),
        core: parse_file(&topology.join("core_id"))?,
        llc_first: last_level_cache(&folder.join("cache"))?,
        node: 0,
    }))
}

/// The first of the CPUs that share the cache of the highest level; `None` if no cache is
/// described.
fn last_level_cache(folder: &Path) -> Result<Option<u32>, TopologyError> {
    let mut highest = None;
    for index in 0..CACHES_MAX {
        let cache = folder.join(format!("index{index}"));
        let Some(level) = parse_file_if_any(&cache.join("level"))? else {
            break;
        };
        let path = cache.join("shared_cpu_list");
        let sharing = parse(
            &path,
            &read(&path)?,
            "a list of CPUs such as 0-7",
            list::cpus,
        )?;
        if highest.is_none_or(|(known, _)| level > known) {
            highest = Some((level, sharing.into_iter().min()));
        }
    }
    Ok(highest.and_then(|(_level, first)| first))
}

/// Reads every memory node with its CPUs.
fn nodes(root: &Path) -> Result<Vec<(u32, Vec<u32>)>, TopologyError> {
    let folder = root.join("node");
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(why) => return Err(TopologyError::Read { path: folder, why }),
    };
    let mut nodes = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(number) = name.to_str().and_then(|name| name.strip_prefix("node")) else {
            continue;
        };
        let Ok(number) = number.parse() else { continue };
        let path = entry.path().join("cpulist");
        let cpus = parse(
            &path,
            &read(&path)?,
            "a list of CPUs such as 0-7",
            list::cpus,
        )?;
        nodes.push((number, cpus));
    }
    Ok(nodes)
}

fn parse_file(path: &Path) -> Result<i64, TopologyError> {
    parse(path, &read(path)?, "a number", list::id)
}

fn parse_file_if_any(path: &Path) -> Result<Option<i64>, TopologyError> {
    if path.exists() {
        parse_file(path).map(Some)
    } else {
        Ok(None)
    }
}

fn read(path: &Path) -> Result<String, TopologyError> {
    fs::read_to_string(path).map_err(|why| TopologyError::Read {
        path: PathBuf::from(path),
        why,
    })
}

fn parse<T>(
    path: &Path,
    text: &str,
    expected: &'static str,
    parser: fn(&str) -> Option<T>,
) -> Result<T, TopologyError> {
    parser(text).ok_or_else(|| TopologyError::Parse {
        path: PathBuf::from(path),
        text: String::from(text.trim_end()),
        expected,
    })
}
