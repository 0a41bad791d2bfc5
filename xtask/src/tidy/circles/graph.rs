//! The graph of files that name each other, and the search for circles in it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The first line on which a file names another file, and the name on that line.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Why {
    pub(super) line: usize,
    pub(super) name: String,
}

/// An edge of the graph: the file `from` names the file `to`.
pub(super) struct Edge<'g> {
    pub(super) from: &'g str,
    pub(super) to: &'g str,
    pub(super) why: &'g Why,
}

/// A graph of files. Its edges are stored by the file from which they lead.
#[derive(Default)]
pub(super) struct Graph {
    edges: BTreeMap<String, BTreeMap<String, Why>>,
    /// For each file, the files of its parent module, of the parent of this module, and so on.
    around: BTreeMap<String, BTreeSet<String>>,
}

impl Graph {
    /// Adds a file, and the files of the modules that contain it.
    pub(super) fn add_file(&mut self, file: &str, around: BTreeSet<&str>) {
        let around = around.into_iter().map(str::to_owned);
        let known = self.around.entry(file.to_owned()).or_default();
        known.extend(around);
    }

    /// Adds an edge, or does nothing if the edge exists already.
    pub(super) fn add(&mut self, from: &str, to: &str, line: usize, name: &str) {
        let name = name.to_owned();
        let edges = self.edges.entry(from.to_owned()).or_default();
        edges.entry(to.to_owned()).or_insert(Why { line, name });
    }

    /// Returns the graph of the folders: an edge between two files becomes an edge between their
    /// folders. `layers` returns the folders of the two files, or `None` if the edge does not
    /// count. The name of an edge between folders says which file names an item, which item this
    /// is, and which file defines it.
    pub(super) fn folded<'g>(
        &'g self,
        layers: impl Fn(&'g str, &'g str) -> Option<(&'g str, &'g str)>,
    ) -> Self {
        let mut folded = Self::default();
        for (from, named) in &self.edges {
            for (to, Why { line, name }) in named {
                let Some((above, below)) = layers(from, to).filter(|(one, other)| one != other)
                else {
                    continue;
                };
                folded.add_file(above, BTreeSet::new());
                folded.add_file(below, BTreeSet::new());
                let name = format!("{from}:{line} names `{name}` of {to}");
                folded.add(above, below, *line, &name);
            }
        }
        folded
    }

    /// Returns whether an edge leads to `file`, because another file names `file`.
    pub(super) fn is_named(&self, file: &str) -> bool {
        self.edges.values().any(|named| named.contains_key(file))
    }

    fn named_by<'g>(&'g self, from: &str) -> impl Iterator<Item = (&'g str, &'g Why)> {
        let edges = self.edges.get(from).into_iter().flatten();
        edges.map(|(to, why)| (to.as_str(), why))
    }

    /// Returns the circles. A circle is a largest set of files in which each file names every other
    /// file, directly or by way of further files of the set. A file that contains the modules of
    /// all other files in the set may name them. So the function leaves out this file and searches
    /// the rest of the set again.
    pub(super) fn circles(&self) -> Vec<BTreeSet<&str>> {
        let mut circles = Vec::new();
        let mut sets = self.connected(&self.edges.keys().map(String::as_str).collect());
        while let Some(mut set) = sets.pop() {
            if let Some(top) = self.top_of(&set) {
                set.remove(top);
                sets.extend(self.connected(&set));
            } else {
                circles.push(set);
            }
        }
        circles.sort();
        circles
    }

    /// Returns the file that contains the modules of all other files in a set, if there is one.
    fn top_of<'g>(&self, set: &BTreeSet<&'g str>) -> Option<&'g str> {
        let is_around = |top: &str, file: &str| file == top || self.around[file].contains(top);
        let mut tops = set.iter().copied();
        tops.find(|top| set.iter().all(|file| is_around(top, file)))
    }

    /// Returns the sets of two or more files that can reach each other by edges between files that
    /// are in `within`.
    fn connected<'g>(&'g self, within: &BTreeSet<&'g str>) -> Vec<BTreeSet<&'g str>> {
        let reached: BTreeMap<&str, BTreeSet<&str>> = within
            .iter()
            .map(|from| (*from, self.reached_from(from, within)))
            .collect();
        let leads_back = |from: &str, to: &str| reached[to].contains(from);
        let mut sets: BTreeSet<BTreeSet<&str>> = BTreeSet::new();
        for (from, reached_from) in &reached {
            let set = reached_from.iter().copied();
            sets.insert(set.filter(|to| leads_back(from, to)).collect());
        }
        sets.into_iter().filter(|set| set.len() > 1).collect()
    }

    fn reached_from<'g>(&'g self, from: &str, within: &BTreeSet<&str>) -> BTreeSet<&'g str> {
        let named_by = |from| {
            let named = self.named_by(from).map(|(to, _)| to);
            named.filter(|to| within.contains(to))
        };
        let mut reached = BTreeSet::new();
        let mut next: Vec<&str> = named_by(from).collect();
        while let Some(file) = next.pop() {
            if reached.insert(file) {
                next.extend(named_by(file));
            }
        }
        reached
    }

    /// Returns the edges of the shortest path that leads from a file of a circle back to the same
    /// file. A path does not count if one of its files contains the modules of all its other files.
    pub(super) fn shortest<'g>(&'g self, circle: &BTreeSet<&'g str>) -> Vec<Edge<'g>> {
        let edges = circle.iter().flat_map(|&from| {
            let edges = self
                .named_by(from)
                .map(move |(to, why)| Edge { from, to, why });
            edges.filter(|edge| circle.contains(edge.to))
        });
        let counts = |way: &Vec<Edge<'g>>| {
            let files = way.iter().map(|edge| edge.from).collect();
            self.top_of(&files).is_none()
        };
        let ways = edges.map(|edge| self.way_by(edge, circle));
        let shortest = ways.filter(counts).min_by_key(Vec::len);
        shortest.unwrap_or_default()
    }

    /// Returns the shortest path that begins with the edge `first`, passes only through files of
    /// `circle`, and leads back to the file in which `first` begins.
    fn way_by<'g>(&'g self, first: Edge<'g>, circle: &BTreeSet<&'g str>) -> Vec<Edge<'g>> {
        let (start, second) = (first.from, first.to);
        // For each file, the edge by which the search first reached that file.
        let mut reached_by = BTreeMap::from([(second, first)]);
        let mut next = VecDeque::from([second]);
        while let Some(from) = next.pop_front() {
            for (to, why) in self.named_by(from) {
                if circle.contains(to) && !reached_by.contains_key(to) {
                    reached_by.insert(to, Edge { from, to, why });
                    next.push_back(to);
                }
            }
        }
        let mut way = Vec::new();
        let mut at = start;
        while let Some(edge) = reached_by.remove(at) {
            at = edge.from;
            way.push(edge);
            if at == start {
                break;
            }
        }
        way.reverse();
        way
    }
}
