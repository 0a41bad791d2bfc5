//! Writes the explanation of a long wait in sentences.

use std::fmt::Write;

use super::cause::{Delay, Holder, OwnWait};
use super::{Explanation, LongWait};
use crate::measure::metric::Unit;
use crate::report::value::human;
use crate::report::wrap::{hanging, wrap};

/// The largest number of CPUs that a sentence lists.
const CPUS_MAX: usize = 8;
/// The largest number of delays of a lock's holder that the text describes one by one.
const DELAYS_MAX: usize = 2;

/// The explanation as text, in lines of at most `width` characters.
#[must_use]
pub fn text(explanation: &Explanation, width: usize) -> String {
    let Explanation {
        machine,
        design,
        seed,
        ended_ns,
        waits,
        ..
    } = explanation;
    let Some(first) = waits.first() else {
        let text = format!(
            "{design} on {machine}, seed {seed}: no CPU waited for a lock in {} of virtual time.",
            time(*ended_ns)
        );
        return wrap(&text, width).join("\n") + "\n";
    };
    let holder = &first.released_by;
    let head = format!(
        "{design} on {machine}, seed {seed}: the longest wait took {}. CPU {} waited for {}. CPU {} \
         had this lock before it, and was {}.",
        time(first.wait_ns),
        first.cpu,
        first.lock,
        holder.cpu,
        holder.doing
    );
    let mut lines = wrap(&head, width);
    for (rank, wait) in (1..).zip(waits) {
        lines.push(String::new());
        lines.extend(hanging(&format!("{rank:>2}. "), &sentences(wait), width));
    }
    lines.join("\n") + "\n"
}

fn sentences(wait: &LongWait) -> String {
    let LongWait {
        cpu,
        lock,
        site,
        doing,
        from_ns,
        wait_ns,
        released_by,
        holds,
        holds_ns,
        longest,
        ..
    } = wait;
    let mut text = format!(
        "CPU {cpu} waited {} for {lock} in {site}{}, from {} on. It was {doing}. ",
        time(*wait_ns),
        match wait.access {
            "read" => ", as a reader",
            "write" => ", as a writer",
            "sleep" => ", asleep",
            _ => "",
        },
        time(*from_ns),
    );
    text += &format!("CPU {} had the lock before it: ", released_by.cpu);
    text += &of_holder(released_by, lock);
    if *holds > 1 {
        text += &format!(
            " During the wait, {holds} holds of this lock took {} together.",
            time(*holds_ns)
        );
    }
    if let Some(longest) = longest {
        text += &format!(
            " The longest of them was that of CPU {}: {}",
            longest.cpu,
            of_holder(longest, lock)
        );
    }
    text += &others(&wait.queued);
    text
}

/// The text about the work of a holder of `lock` and about its delays. It follows the words "CPU 3
/// had the lock: ".
fn of_holder(holder: &Holder, lock: &str) -> String {
    let Some(hold_ns) = holder.hold_ns else {
        return format!(
            "it was {} in {}, for less than 1 ns.",
            holder.doing, holder.site
        );
    };
    let mut text = format!(
        "it was {} in {}, for {}",
        holder.doing,
        holder.site,
        time(hold_ns)
    );
    if let (Some(pages), Some(blocks)) = (holder.pages, holder.blocks) {
        let _ = write!(text, ", and moved {}", plural(pages.into(), "page"));
        if blocks != pages {
            let _ = write!(text, " in {}", plural(blocks.into(), "block"));
        }
        if let Some(of) = holder.lists_of.filter(|of| *of != holder.cpu) {
            let _ = write!(text, " of the lists of CPU {of}");
        }
    }
    text.push('.');
    for delay in holder.delays.iter().take(DELAYS_MAX) {
        text += &of_delay(delay, holder.cpu);
    }
    if holder.delays.len() > DELAYS_MAX {
        let rest = &holder.delays[DELAYS_MAX..];
        let rest_ns: u64 = rest.iter().map(|delay| delay.delay_ns).sum();
        text += &format!(
            " {} of CPU {} took {}.",
            plural(rest.len() as u64, "more delay"),
            holder.cpu,
            time(rest_ns)
        );
    }
    if let Some(own) = holder.waited.first() {
        text += &of_own_wait(own, holder.cpu, lock);
    }
    text
}

fn of_delay(delay: &Delay, cpu: u32) -> String {
    let length = time(delay.delay_ns);
    match delay.kind {
        "steal" => format!(" The hypervisor took CPU {cpu} away for {length} of this."),
        "preempted" => format!(" Other work ran on CPU {cpu} for {length} of this."),
        "interrupt" => format!(" An interrupt took {length} of this."),
        kind => format!(" A {kind} took {length} of this."),
    }
}

/// The sentences about a task on `cpu` that waited for another lock while it held `lock`.
fn of_own_wait(own: &OwnWait, cpu: u32, lock: &str) -> String {
    let mut text = format!(
        " While CPU {cpu} held {lock}, it waited {} for {} in {} itself.",
        time(own.wait_ns),
        own.lock,
        own.site
    );
    if let Some(holder) = &own.released_by {
        text += &format!(" CPU {} had that lock: ", holder.cpu);
        text += &of_holder(holder, &own.lock);
    }
    text
}

fn others(queued: &[u32]) -> String {
    match queued {
        [] => " No other CPU waited for this lock at that time.".to_owned(),
        [one] => format!(" CPU {one} waited for this lock at that time, too."),
        several => {
            let named = several.iter().take(CPUS_MAX).map(u32::to_string);
            let mut list = named.collect::<Vec<_>>().join(", ");
            if several.len() > CPUS_MAX {
                list.push_str(", …");
            }
            format!(
                " {} other CPUs waited for this lock at that time ({list}).",
                several.len()
            )
        }
    }
}

fn plural(count: u64, noun: &str) -> String {
    let number = human(count as f64, Unit::Count);
    match count {
        1 => format!("{number} {noun}"),
        _ => format!("{number} {noun}s"),
    }
}

fn time(ns: u64) -> String {
    human(ns as f64, Unit::Nanos)
}
