//! The processes that the load `population` starts, read from the text of the parameter
//! `processes`.

use crate::guest::op::Op;

/// A process that the load `population` starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) kib: usize,
    pub(super) adj: i32,
    pub(super) group: Option<String>,
    /// The node to which a memory policy binds the process's memory.
    pub(super) node: Option<u32>,
    pub(super) second: Option<Second>,
}

/// A second process that uses the memory of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Second {
    /// The second process runs concurrently with the first (`CLONE_VM`).
    Shared,
    /// The first process waits for the second to exit (`vfork`).
    Vfork,
}

impl Process {
    /// Returns the steps of the worker that becomes this process, on `cpu`.
    pub(super) fn program(&self, cpu: u32) -> Vec<Op> {
        let mut program = vec![Op::Cpu(cpu), Op::OomScoreAdj(self.adj)];
        program.extend(self.group.clone().map(Op::Group));
        program.extend(self.node.map(Op::Bind));
        program.push(Op::Map(self.kib.div_ceil(4)));
        match self.second {
            None => program.push(Op::Report),
            Some(Second::Shared) => program.extend([Op::Share, Op::Report]),
            // The child reports to the load's leader in place of the worker, because the worker
            // waits until the child is killed.
            Some(Second::Vfork) => program.push(Op::Vfork),
        }
        program.push(Op::Wait);
        program
    }

    fn parse(text: &str) -> Option<Self> {
        let mut extras = text.split('+');
        let mut parts = extras.next()?.splitn(3, ':');
        let kib = parts.next()?.parse().ok()?;
        let adj = parts.next().map_or(Some(0), |adj| adj.parse().ok())?;
        let group = parts.next().map(ToOwned::to_owned);
        let named = group
            .as_ref()
            .is_none_or(|name| !name.is_empty() && !name.contains('/'));
        if kib == 0 || !(-1000..=1000).contains(&adj) || !named {
            return None;
        }
        let (mut node, mut second) = (None, None);
        for extra in extras {
            match extra {
                "shared" => second = Some(Second::Shared),
                "vfork" => second = Some(Second::Vfork),
                _ => node = Some(extra.strip_prefix("node=")?.parse().ok()?),
            }
        }
        Some(Self {
            kib,
            adj,
            group,
            node,
            second,
        })
    }
}

/// Parses a comma-separated list of processes, each in the form
/// `KIB[:ADJ[:GROUP]][+node=N][+shared][+vfork]`.
pub(super) fn parse(text: &str) -> Result<Vec<Process>, String> {
    let process = |text: &str| {
        Process::parse(text)
            .ok_or_else(|| format!("`{text}` is no KIB[:ADJ[:GROUP]][+node=N][+shared][+vfork]"))
    };
    text.split(',').map(process).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_population_reads_from_its_text() {
        let of = |kib, adj, group: Option<&str>, node, second| Process {
            kib,
            adj,
            group: group.map(ToOwned::to_owned),
            node,
            second,
        };
        assert_eq!(
            parse("40,60:-100+shared,80:0:small+node=1+vfork,4+node=0").unwrap(),
            [
                of(40, 0, None, None, None),
                of(60, -100, None, None, Some(Second::Shared)),
                of(80, 0, Some("small"), Some(1), Some(Second::Vfork)),
                of(4, 0, None, Some(0), None),
            ]
        );
        for text in [
            "",
            "40,",
            "0",
            "40:2000",
            "x",
            "40:1:",
            "40:1:a/b",
            "40+",
            "40+node=",
            "40+forked",
        ] {
            assert!(parse(text).unwrap_err().contains("is no KIB"), "{text}");
        }
    }

    #[test]
    fn a_process_is_as_large_as_it_was_to_be() {
        let program = parse("3001:-5:g+node=1").unwrap().remove(0).program(3);
        assert_eq!(
            program,
            [
                Op::Cpu(3),
                Op::OomScoreAdj(-5),
                Op::Group("g".to_owned()),
                Op::Bind(1),
                Op::Map(751),
                Op::Report,
                Op::Wait
            ]
        );
    }

    #[test]
    fn the_second_process_is_there_before_anything_is_reported() {
        let program = |text| parse(text).unwrap().remove(0).program(3);
        let end = [Op::Map(1), Op::Share, Op::Report, Op::Wait];
        assert_eq!(program("4+shared")[2..], end);
        assert_eq!(program("4+vfork")[2..], [Op::Map(1), Op::Vfork, Op::Wait]);
    }
}
