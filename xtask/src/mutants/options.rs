//! The options of `cargo xtask mutants`.

/// The usage of `cargo xtask mutants`.
pub(crate) const USAGE: &str = "\
Usage: cargo xtask mutants [OPTIONS]

Changes mm in one place at a time and sees whether a test fails; docs/mutants.md explains the report.

Options:
  --group NAME     Only mutants of this group of xtask/mutants.toml; may be repeated
  --since COMMIT   Only mutants of lines that differ from this commit
  --again          Only mutants that survived the last time, to see whether new tests catch them
  --sample N       N mutants drawn at random instead of all, besides those that do not compile
  --seed N         Which sample is drawn [default: 1]
  --shard K/N      Every Nth of the mutants, beginning with the Kth (1 to N)
  --jobs N         Tests that run at the same time [default: 2]
  --list           Prints the mutants and tries none; some may not compile
";

/// The options of a run, after they have been checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) groups: Vec<String>,
    pub(crate) since: Option<String>,
    pub(crate) again: bool,
    pub(crate) sample: Option<usize>,
    pub(crate) seed: u64,
    /// The mutants are divided into parts, of which this run tries one: the index of this part,
    /// from 0, and the number of parts.
    pub(crate) shard: (usize, usize),
    pub(crate) jobs: usize,
    pub(crate) list: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            groups: Vec::new(),
            since: None,
            again: false,
            sample: None,
            seed: 1,
            shard: (0, 1),
            jobs: 2,
            list: false,
        }
    }
}

impl Options {
    /// Parses `args`, the words of the command line after `mutants`.
    pub(crate) fn parse(args: &[&str]) -> Result<Self, String> {
        let mut options = Self::default();
        let mut args = args.iter();
        while let Some(&name) = args.next() {
            match name {
                "--list" => options.list = true,
                "--again" => options.again = true,
                _ => options.set(name, args.next().copied())?,
            }
        }
        Ok(options)
    }

    fn set(&mut self, name: &str, value: Option<&str>) -> Result<(), String> {
        let known = [
            "--group", "--since", "--sample", "--seed", "--shard", "--jobs",
        ];
        if !known.contains(&name) {
            return Err(format!("unknown option `{name}`\n\n{USAGE}"));
        }
        let value = value.ok_or_else(|| format!("{name} needs a value\n\n{USAGE}"))?;
        match name {
            "--group" => self.groups.push(value.to_owned()),
            "--since" => self.since = Some(value.to_owned()),
            "--sample" => self.sample = Some(at_least_one(name, value)?),
            "--seed" => {
                self.seed = value
                    .parse()
                    .map_err(|_| format!("--seed {value}: write a whole number, such as 1"))?;
            }
            "--jobs" => self.jobs = at_least_one(name, value)?,
            _ => self.shard = shard(value)?,
        }
        Ok(())
    }
}

fn at_least_one(name: &str, value: &str) -> Result<usize, String> {
    match value.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(format!(
            "{name} {value}: write a whole number of at least 1"
        )),
    }
}

fn shard(value: &str) -> Result<(usize, usize), String> {
    let parts = value.split_once('/').and_then(|(part, of)| {
        let (part, of) = (part.parse::<usize>().ok()?, of.parse::<usize>().ok()?);
        (1..=of).contains(&part).then(|| (part - 1, of))
    });
    parts.ok_or_else(|| format!("--shard {value}: write K/N with K from 1 to N, such as 2/8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_is_read() {
        let args = "--group page --group oom --since HEAD~1 --sample 150 --seed 7 --shard 2/8 \
                    --jobs 3 --again --list";
        let args: Vec<&str> = args.split_whitespace().collect();
        let expected = Options {
            groups: vec!["page".to_owned(), "oom".to_owned()],
            since: Some("HEAD~1".to_owned()),
            again: true,
            sample: Some(150),
            seed: 7,
            shard: (1, 8),
            jobs: 3,
            list: true,
        };
        assert_eq!(Options::parse(&args), Ok(expected));
        assert_eq!(Options::parse(&[]), Ok(Options::default()));
    }

    #[test]
    fn what_cannot_be_is_refused_with_a_way_out() {
        for (args, help) in [
            (&["--sample", "0"][..], "at least 1"),
            (&["--seed", "x"], "such as 1"),
            (&["--shard", "0/4"], "such as 2/8"),
            (&["--shard", "5/4"], "such as 2/8"),
            (&["--shard", "1"], "such as 2/8"),
            (&["--jobs"], "needs a value"),
            (&["--all"], "unknown option"),
        ] {
            let error = Options::parse(args).expect_err("it is refused");
            assert!(error.contains(help), "{args:?}: {error}");
        }
    }
}
