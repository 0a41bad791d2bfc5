//! The log of a program that moves from CPU to CPU, with one line of text for each step:
//!
//! ```text
//! # kind CPUs size seed
//! I cpu anon file shown               start: the CPU `cpu` had counted all of anon
//! I all anon file shown               start: all CPUs had folded, so the reading shows all anon
//! cpu +pages offset shown             pages touched; offset of the first page in its page table
//! cpu -pages offset shown             pages unmapped; offset as above
//! P anon file shown smaps own statm   precise readings
//! ```
//!
//! `shown` is the approximate number of resident pages that the kernel showed after the step.

/// The largest number of CPUs that a log can state. Recordings have far fewer CPUs, so a larger
/// number is an error in the log.
const CPUS_MAX: u32 = 4096;
/// The largest number of pages that a line of the log can state. A larger number is an error in the
/// log.
const PAGES_MAX: u64 = 1 << 24;
/// The number of pages that one page table maps.
pub(super) const TABLE_PAGES: u64 = 512;

/// The log of one run of the program that moves from CPU to CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) kind: String,
    pub(super) cpus: u32,
    pub(super) size: u64,
    pub(super) warm: Option<Warm>,
    pub(super) steps: Vec<LoggedOp>,
    /// How many lines cannot be judged: the first unreadable line and all later lines of the run.
    /// After an unreadable line, the state of the counters is unknown.
    pub(super) set_aside: u64,
    /// The line number, in the log, of the first unreadable line of this run. The log's first line
    /// is line 1.
    bad_line: Option<usize>,
}

/// The pages that were resident when the log began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Warm {
    /// The CPU whose differential (its part that is not yet in the shared value) held all of
    /// `anon`. `None` if every CPU had folded its differential into the shared value.
    pub(super) cpu: Option<u32>,
    /// The number of anonymous pages that were resident when the log began.
    pub(super) anon: u64,
    /// The kernel's approximate reading when the log began, in pages. It includes pages of files.
    pub(super) shown: u64,
}

/// A step of the program, from one line of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoggedOp {
    Touch(Pages),
    Unmap(Pages),
    Precise {
        anon: i64,
        file: i64,
        shown: i64,
        smaps: i64,
        own: i64,
    },
}

/// Pages that were mapped and touched, or unmapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pages {
    pub(super) cpu: u32,
    pub(super) pages: u64,
    /// The index of the first page in its page table. It is below [`TABLE_PAGES`].
    pub(super) offset: u64,
    /// The resident pages of the process, as the kernel's approximate sum shows them after the
    /// step. Pages of files are included.
    pub(super) shown: i64,
}

impl Run {
    /// The name of the run in tables: the kind of program, its size and its number of CPUs.
    pub(super) fn name(&self) -> String {
        format!("{} {}, {} CPUs", self.kind, self.size, self.cpus)
    }

    /// Sets aside line `number`, which is unreadable or follows an unreadable line of this run.
    fn stop_at(&mut self, number: usize) {
        self.bad_line.get_or_insert(number);
        self.set_aside += 1;
    }

    /// A note that says why lines of this run are set aside. `None` if all its lines were readable.
    pub(super) fn trouble(&self) -> Option<String> {
        let line = self.bad_line?;
        Some(format!(
            "Line {line} of the log cannot be read, so {} lines of `{}` from there on are set aside.",
            self.set_aside,
            self.name()
        ))
    }
}

/// Reads the runs of a log. Lines before the first run are ignored.
pub(super) fn parse(text: &str) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match (&*words, runs.last_mut()) {
            ([], _) => {}
            (["#", head @ ..], last) => match (begin(head), last) {
                (Some(run), _) => runs.push(run),
                (None, Some(last)) => last.stop_at(number),
                (None, None) => {}
            },
            (_, None) => {}
            (words, Some(run)) => {
                if run.bad_line.is_some() || take(run, words).is_none() {
                    run.stop_at(number);
                }
            }
        }
    }
    runs
}

fn begin(head: &[&str]) -> Option<Run> {
    let [kind, cpus, size, _seed] = head else {
        return None;
    };
    let cpus = cpus
        .parse()
        .ok()
        .filter(|cpus| (1..=CPUS_MAX).contains(cpus))?;
    Some(Run {
        kind: (*kind).to_owned(),
        cpus,
        size: size.parse().ok()?,
        warm: None,
        steps: vec![],
        set_aside: 0,
        bad_line: None,
    })
}

fn take(run: &mut Run, words: &[&str]) -> Option<()> {
    let cpus = run.cpus;
    let cpu = |word: &str| word.parse().ok().filter(|cpu| *cpu < cpus);
    match words {
        ["I", "all", anon, _file, shown] => {
            run.warm = Some(Warm {
                cpu: None,
                anon: pages(anon)?,
                shown: pages(shown)?,
            });
        }
        ["I", on, anon, _file, shown] => {
            let anon = pages(anon)?;
            // If `anon` reaches the counter's batch, the CPU may already have added a part of
            // `anon` to the shared value, and the log does not say how large this part is.
            let fits = anon < u64::from(cpus).saturating_mul(2).max(32);
            run.warm = Some(Warm {
                cpu: Some(cpu(on)?),
                anon: fits.then_some(anon)?,
                shown: pages(shown)?,
            });
        }
        // Only an `I` line gives the number of pages that were resident before the first step. So a
        // step without an earlier `I` line is unreadable.
        _ if run.warm.is_none() => return None,
        ["P", anon, file, shown, smaps, own, ..] => run.steps.push(LoggedOp::Precise {
            anon: anon.parse().ok()?,
            file: file.parse().ok()?,
            shown: shown.parse().ok()?,
            smaps: smaps.parse().ok()?,
            own: own.parse().ok()?,
        }),
        [on, change, offset, shown] => {
            let (sign, count) = change.split_at_checked(1)?;
            let pages = Pages {
                cpu: cpu(on)?,
                pages: pages(count)?,
                offset: offset.parse().ok().filter(|offset| *offset < TABLE_PAGES)?,
                shown: shown.parse().ok()?,
            };
            run.steps.push(match sign {
                "+" => LoggedOp::Touch(pages),
                "-" => LoggedOp::Unmap(pages),
                _ => return None,
            });
        }
        _ => return None,
    }
    Some(())
}

fn pages(word: &str) -> Option<u64> {
    word.parse().ok().filter(|pages| *pages <= PAGES_MAX)
}
