//! The check of a declaration: every name that it uses must exist.

use std::fmt::Display;

use plimsoll_sim::profile::Card;

use super::{Declaration, OTHERS};
use crate::error::Error;
use crate::measure::metric::Metric;
use crate::run::options::Effort;

impl<S, K, D: Display> Declaration<S, K, D> {
    /// Checks that every machine, design and metric in the declaration exists, and that every
    /// published figure belongs to a row of the report.
    pub(super) fn check_names(&self) -> Result<(), Error> {
        let designs: Vec<String> = (self.designs)()?.iter().map(D::to_string).collect();
        for (a, b) in self.verdicts {
            known("design", a, &designs)?;
            if *b != OTHERS {
                known("design", b, &designs)?;
            }
        }
        for published in self.published {
            known("machine", published.machine, self.machines)?;
        }
        for machine in self.machines {
            self.check_on(machine, &designs)?;
        }
        Ok(())
    }

    fn check_on(&self, machine: &str, designs: &[String]) -> Result<(), Error> {
        let scene = (self.setup)(machine, Card::Mid, Effort::Full)?;
        let names = |metrics: Vec<Metric>| -> Vec<String> {
            let names = metrics.into_iter().map(|metric| metric.name.into_owned());
            names.collect()
        };
        let measured = names((self.metrics)(&scene));
        self.answer.check(&measured, designs)?;
        let shown = names(self.shown.unwrap_or(self.metrics)(&scene));
        let compared = names(self.compared.unwrap_or(self.metrics)(&scene));
        let mut wanted = [shown.clone(), compared].concat();
        for (a, b, metrics) in self.cards.iter().flat_map(|cards| cards.pairs) {
            known("design", a, designs)?;
            known("design", b, designs)?;
            wanted.extend(names(metrics(&scene)));
        }
        for name in &wanted {
            known("metric", name, &measured)?;
        }
        for published in self.published.iter().filter(|of| of.machine == machine) {
            for figure in published.figures {
                let mut of_row = figure.values.designs().into_iter();
                of_row
                    .try_for_each(|design| known("design", design, designs))
                    .and_then(|()| known("metric", figure.metric, &shown))
                    .map_err(|error| Error::Invalid(format!("{}: {error}", published.source)))?;
            }
        }
        Ok(())
    }
}

/// Returns an error with the nearest of `names` if `name` is not one of them.
pub(super) fn known(
    kind: &'static str,
    name: &str,
    names: &[impl AsRef<str>],
) -> Result<(), Error> {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    if names.contains(&name) {
        Ok(())
    } else {
        Err(Error::unknown(kind, name, &names))
    }
}
