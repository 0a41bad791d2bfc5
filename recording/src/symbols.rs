//! Names of the kernel's functions. `/proc/kallsyms` maps addresses to names, and recordings store
//! names as small numbers.

use std::collections::HashMap;

use crate::event::Symbol;

/// The names of functions to which events refer. Each name occurs once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Symbols {
    names: Vec<String>,
    places: HashMap<String, u32>,
}

impl Symbols {
    /// Returns the symbol with this name; the same name always gives the same symbol.
    pub fn symbol(&mut self, name: &str) -> Symbol {
        if let Some(&place) = self.places.get(name) {
            return Symbol(place);
        }
        let place = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.names.push(name.to_owned());
        self.places.insert(name.to_owned(), place);
        Symbol(place)
    }

    /// Returns all names so far, in the order of [`Symbol`].
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }
}

/// The addresses at which the kernel's functions begin, with their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kallsyms {
    /// The functions in ascending order of address.
    functions: Vec<(u64, String)>,
}

impl Kallsyms {
    /// Parses the text of `/proc/kallsyms`, or some lines of it. Data symbols and other lines are
    /// skipped.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let function = |line: &str| {
            let mut words = line.split_ascii_whitespace();
            let address = u64::from_str_radix(words.next()?, 16).ok()?;
            let kind = words.next()?;
            let name = words.next()?;
            let is_function = matches!(kind, "t" | "T" | "w" | "W" | "i");
            // If the reader has no permission to see addresses, the kernel prints all of them as
            // zeros.
            (is_function && address != 0).then(|| (address, name.to_owned()))
        };
        let mut functions: Vec<_> = text.lines().filter_map(function).collect();
        functions.sort_by_key(|(address, _)| *address);
        Self { functions }
    }

    /// Returns true if no function of the kernel is known, because the text of kallsyms was empty
    /// or hid all addresses.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// Returns the name of the function that contains `address`, or the address as text if no
    /// function begins at or below `address`.
    #[must_use]
    pub fn name(&self, address: u64) -> String {
        let behind = self
            .functions
            .partition_point(|(begin, _)| *begin <= address);
        let found = behind.checked_sub(1).and_then(|at| self.functions.get(at));
        found.map_or_else(|| format!("{address:#x}"), |(_, name)| name.clone())
    }

    /// Returns the address ranges of the function with this name and of the parts that a compiler
    /// has split off it (`name.isra.0`, `name.cold`). Each range ends where the next function
    /// begins. The result leaves out the function with the highest address, whose end is not known.
    #[must_use]
    pub fn extents(&self, name: &str) -> Vec<(u64, u64)> {
        let is_part = |known: &str| {
            let rest = known.strip_prefix(name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let pairs = self.functions.windows(2);
        let parts = pairs.filter(|pair| is_part(&pair[0].1));
        parts.map(|pair| (pair[0].0, pair[1].0)).collect()
    }

    /// Returns the address at which the function with this name begins; `None` if the name is
    /// unknown.
    #[must_use]
    pub fn address(&self, name: &str) -> Option<u64> {
        let found = self.functions.iter().find(|(_, known)| known == name);
        found.map(|(address, _)| *address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_of_the_function_that_begins_at_or_before_it() {
        let text = "ffffffff81001000 T first\nffffffff81002000 t second [module]\n\
                    ffffffff81001800 d data\n0000000000000000 T hidden\nnonsense\n";
        let kallsyms = Kallsyms::parse(text);
        assert_eq!(kallsyms.name(0xffff_ffff_8100_1fff), "first");
        assert_eq!(kallsyms.name(0xffff_ffff_8100_2000), "second");
        assert_eq!(kallsyms.name(0x1000), "0x1000");
        assert_eq!(kallsyms.address("second"), Some(0xffff_ffff_8100_2000));
        assert!(Kallsyms::parse("0000000000000000 T hidden\n").is_empty());
    }

    #[test]
    fn a_function_goes_up_to_the_next_and_has_parts() {
        let text = "10 t drain\n20 t drain.isra.0\n30 t drains\n40 T other\n50 t drain.cold\n";
        let kallsyms = Kallsyms::parse(text);
        assert_eq!(kallsyms.extents("drain"), [(0x10, 0x20), (0x20, 0x30)]);
        assert_eq!(kallsyms.extents("other"), [(0x40, 0x50)]);
        assert_eq!(kallsyms.extents("none"), []);
    }

    #[test]
    fn a_name_has_one_symbol() {
        let mut symbols = Symbols::default();
        let (a, b) = (symbols.symbol("a"), symbols.symbol("b"));
        assert_ne!(a, b);
        assert_eq!(symbols.symbol("a"), a);
        assert_eq!(symbols.names(), ["a", "b"]);
    }
}
