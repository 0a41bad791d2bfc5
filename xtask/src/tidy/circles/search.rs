//! The search for the file in which the item behind a path is defined.

use std::collections::BTreeSet;

use super::modules::{Meaning, Modules};

impl Modules {
    /// Returns the files that define the item that `path` names in module `nth`. The result is
    /// empty if `path` names a module, or an item of another crate.
    pub(super) fn defining(&self, nth: usize, path: &[String]) -> BTreeSet<&str> {
        let mut search = Search {
            modules: self,
            inside_of: BTreeSet::new(),
            found: BTreeSet::new(),
        };
        search.follow(nth, path);
        search.found
    }
}

/// The search for the definitions behind one path.
struct Search<'m> {
    modules: &'m Modules,
    /// The imports that the search is currently following, each with its module.
    inside_of: BTreeSet<(usize, &'m [String])>,
    found: BTreeSet<&'m str>,
}

impl<'m> Search<'m> {
    /// Finds the files that define the item to which `path` leads, and adds them to `found`. `path`
    /// is a path in the code of module `nth`.
    fn follow(&mut self, nth: usize, path: &[String]) {
        let Some((first, rest)) = path.split_first() else {
            return;
        };
        match first.as_str() {
            "crate" | "$crate" => self.inside(0, rest),
            "self" => self.inside(nth, rest),
            "super" => {
                if let Some(parent) = self.modules.all[nth].parent {
                    // In `super::super`, the second `super` starts from the parent.
                    let again = rest.first().is_some_and(|next| next == "super");
                    if again {
                        self.follow(parent, rest);
                    } else {
                        self.inside(parent, rest);
                    }
                }
            }
            // A name that is unknown in the module belongs to another crate or is a variable.
            _ => {
                self.known(nth, first, rest);
            }
        }
    }

    /// Finds the files that define the item of `path`, and adds them to `found`. Module `nth` must
    /// know the first name of the path.
    fn inside(&mut self, nth: usize, path: &[String]) {
        let Some((first, rest)) = path.split_first() else {
            return;
        };
        if !self.known(nth, first, rest) {
            // Module `nth` does not know the name. So the module must call a macro that defines the
            // item.
            let modules = self.modules;
            self.found.insert(&modules.all[nth].file);
        }
    }

    /// Finds the files that define the item of `name::rest` in module `nth`, and adds them to
    /// `found`. Returns whether module `nth` knows `name`.
    fn known(&mut self, nth: usize, name: &str, rest: &[String]) -> bool {
        let modules = self.modules;
        let module = &modules.all[nth];
        if let Some(meanings) = module.names.get(name) {
            for meaning in meanings {
                match meaning {
                    Meaning::Item => {
                        self.found.insert(&module.file);
                    }
                    Meaning::Module(below) => self.inside(*below, rest),
                    Meaning::Import(path) => self.follow_import(nth, path, rest),
                }
            }
            return true;
        }
        let before = self.found.len();
        for glob in &module.globs {
            self.follow_import(nth, glob, &joined(&[name.to_owned()], rest));
        }
        self.found.len() > before
    }

    /// Follows an import of module `nth`, unless the search is already following the same import.
    /// The path of an import such as `use syn::syn` begins with the name of a crate. The search
    /// takes this name for the name that the import itself defines, so without this check the
    /// search would follow the import for ever.
    fn follow_import(&mut self, nth: usize, import: &'m [String], rest: &[String]) {
        if self.inside_of.insert((nth, import)) {
            self.follow(nth, &joined(import, rest));
            self.inside_of.remove(&(nth, import));
        }
    }
}

fn joined(path: &[String], rest: &[String]) -> Vec<String> {
    [path, rest].concat()
}
