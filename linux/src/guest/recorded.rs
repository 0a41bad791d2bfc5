//! Records the guest while its load runs.

use std::io;
use std::path::Path;
use std::process::Command;

use super::init::say;
use super::plan::Plan;
use crate::boot::Stage;

pub(super) fn record(_plan: &Plan, mut command: Command, _port: &Path) -> io::Result<()> {
    say(&Stage::Load);
    let status = command.status()?;
    if !status.success() {
        return Err(io::Error::other(format!("the load ended with {status}")));
    }
    say(&Stage::Reading);
    Ok(())
}
