//! Attributes that keep code out of an ordinary build.

use syn::punctuated::Punctuated;
use syn::{Attribute, Meta, Token};

/// The conditions of a `cfg` that never hold in an ordinary build. Any other condition may hold.
const NEVER: [&str; 3] = ["test", "doc", "doctest"];

/// Returns whether one of the attributes is a `cfg` whose condition never holds in an ordinary
/// build.
pub(super) fn is_left_out(attributes: &[Attribute]) -> bool {
    let mut conditions = attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("cfg"));
    conditions.any(|attribute| {
        let condition = attribute.parse_args::<Meta>();
        condition.is_ok_and(|condition| holds(&condition) == Some(false))
    })
}

/// Returns whether a condition holds in an ordinary build; `None` if the result depends on the
/// build.
fn holds(condition: &Meta) -> Option<bool> {
    let Meta::List(list) = condition else {
        let is_never = NEVER.iter().any(|never| condition.path().is_ident(never));
        return is_never.then_some(false);
    };
    let inner = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
    let inner: Vec<Option<bool>> = inner.ok()?.iter().map(holds).collect();
    let every = |wanted| inner.iter().all(|holds| *holds == Some(wanted));
    let some = |wanted| inner.contains(&Some(wanted));
    if list.path.is_ident("not") {
        inner.first()?.map(|holds| !holds)
    } else if list.path.is_ident("all") {
        some(false).then_some(false).or(every(true).then_some(true))
    } else {
        some(true).then_some(true).or(every(false).then_some(false))
    }
}
