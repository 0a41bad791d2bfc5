//! The module that is added to the rewritten `mm`. The module knows which mutant is switched on.

/// The environment variable with the number of the mutant to switch on.
pub(crate) const MUTANT: &str = "PLIMSOLL_MUTANT";

/// The environment variable with the path of a file. The test program adds to this file the number
/// of each mutant whose code it reaches.
pub(crate) const REACHED: &str = "PLIMSOLL_MUTANTS_REACHED";

/// The name of the file with the added module. The file is beside `lib.rs` of `mm`.
pub(crate) const FILE: &str = "mutant_switch.rs";

/// The lines that are appended to `lib.rs` of `mm`, to declare the added module.
pub(crate) const DECLARATION: &str = "\nextern crate std as mutant_std;\nmod mutant_switch;\n";

/// Returns the text of a call that tells whether a mutant is switched on.
pub(super) fn condition(mutant: usize) -> String {
    format!("crate::mutant_switch::is({mutant})")
}

/// Returns the text of the module for mutants with numbers below `count`.
pub(crate) fn module(count: usize) -> String {
    TEMPLATE
        .replace("COUNT", &count.max(1).to_string())
        .replace("VARIABLE_MUTANT", MUTANT)
        .replace("VARIABLE_REACHED", REACHED)
}

const TEMPLATE: &str = r#"//! Which mutant is switched on.

use crate::mutant_std::env;
use crate::mutant_std::fs::OpenOptions;
use crate::mutant_std::io::Write;
use crate::mutant_std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

const NONE: u32 = u32::MAX - 2;
const LISTS: u32 = u32::MAX - 1;
const UNREAD: u32 = u32::MAX;

static NOW: AtomicU32 = AtomicU32::new(UNREAD);
static SEEN: [AtomicBool; COUNT] = [const { AtomicBool::new(false) }; COUNT];

/// Returns whether a mutant is switched on.
#[inline]
pub fn is(mutant: u32) -> bool {
    let now = NOW.load(Ordering::Relaxed);
    if now > NONE {
        return slowly(mutant);
    }
    now == mutant
}

#[cold]
#[inline(never)]
fn slowly(mutant: u32) -> bool {
    if NOW.load(Ordering::Relaxed) == UNREAD {
        let now = match (env::var("VARIABLE_MUTANT"), env::var_os("VARIABLE_REACHED")) {
            (Ok(number), _) => number.parse().expect("VARIABLE_MUTANT is a number"),
            (_, Some(_)) => LISTS,
            _ => NONE,
        };
        NOW.store(now, Ordering::Relaxed);
    }
    let now = NOW.load(Ordering::Relaxed);
    if now == LISTS && !SEEN[mutant as usize].swap(true, Ordering::Relaxed) {
        let path = env::var_os("VARIABLE_REACHED").expect("it was set before");
        let mut file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.as_mut().expect("VARIABLE_REACHED is a file");
        writeln!(file, "{mutant}").expect("VARIABLE_REACHED can be written");
    }
    now == mutant
}
"#;
