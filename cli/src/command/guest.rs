//! `plimsoll guest`: the roles of this program inside a guest that it has booted.

use std::io;

use plimsoll_linux::guest::load::Load;
use plimsoll_linux::guest::{init, worker};

use crate::linux_args::{Guest, Role};
use crate::output::BadInput;

pub(crate) fn run(args: Guest) -> anyhow::Result<()> {
    match args.role {
        Role::Init => init::run().map_err(|error| BadInput(error.to_string()).into()),
        Role::Load { name, told } => {
            let load = Load::named(&name);
            let load = load.ok_or_else(|| BadInput(format!("no load is called `{name}`")))?;
            let values = load.values(&told);
            let values = values.map_err(|error| BadInput(format!("load {name}: {error}")))?;
            if !init::is_guest() {
                let text = format!(
                    "load {name} runs in a booted guest only, because it takes CPUs and memory away: \
                     use `plimsoll linux --load {name}`"
                );
                return Err(BadInput(text).into());
            }
            Ok(load.run(&values)?)
        }
        Role::Worker => Ok(worker::run()?),
        Role::Nothing => {
            io::copy(&mut io::stdin(), &mut io::sink())?;
            Ok(())
        }
    }
}
