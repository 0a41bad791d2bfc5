//! The modules of a crate: the file of each module, the names in it, and the files that define
//! macros.

use std::collections::{BTreeMap, BTreeSet};

use syn::ext::IdentExt;
use syn::{Attribute, Item, ItemMod, ItemUse, UseTree, Visibility};

use super::conditions::is_left_out;
use crate::tidy::Tree;

/// A path that a `use` names.
pub(super) struct Import {
    pub(super) path: Vec<String>,
    /// The name that the import gives to the path, or `None` for `*` and for `as _`.
    name: Option<String>,
    glob: bool,
    pub(super) line: usize,
}

/// The meaning of a name inside a module.
pub(super) enum Meaning {
    /// An item that the module defines.
    Item,
    /// A child module, by its index in [`Modules::all`].
    Module(usize),
    /// The path of an import.
    Import(Vec<String>),
}

/// A module, which is either a file or a `mod` with braces in a file.
pub(super) struct Module {
    /// The path of the module's file from the root of the repository.
    pub(super) file: String,
    pub(super) items: Vec<Item>,
    /// The index of the parent module; `None` for the root of the crate.
    pub(super) parent: Option<usize>,
    /// The meanings of each name. One name may be a module, a type and a function at once.
    pub(super) names: BTreeMap<String, Vec<Meaning>>,
    pub(super) globs: Vec<Vec<String>>,
}

/// All modules of a crate that are part of an ordinary build.
pub(super) struct Modules {
    /// The modules. Each module comes after its parent, so the root of the crate comes first.
    pub(super) all: Vec<Module>,
    /// The files that define a `macro_rules!` macro, by the name of the macro.
    macros: BTreeMap<String, BTreeSet<String>>,
}

impl Modules {
    /// Reads the modules below `root`, which is a `lib.rs` or `main.rs`.
    ///
    /// # Errors
    ///
    /// If a file is not Rust; the message names the file.
    pub(super) fn read(tree: &Tree, root: &str) -> Result<Self, String> {
        let mut modules = Self {
            all: Vec::new(),
            macros: BTreeMap::new(),
        };
        let folder = root.rsplit_once('/').map_or("", |(folder, _)| folder);
        modules.read_file(tree, root, folder, None)?;
        Ok(modules)
    }

    /// Reads a file and its child modules, whose files are in `folder`.
    fn read_file(
        &mut self,
        tree: &Tree,
        path: &str,
        folder: &str,
        parent: Option<usize>,
    ) -> Result<usize, String> {
        let text = tree.file(path).map_or("", |file| &file.text);
        let parsed = syn::parse_file(text).map_err(|error| {
            let line = error.span().start().line;
            format!("{path}:{line}: not Rust: {error}")
        })?;
        self.add(tree, path, folder, parent, parsed.items)
    }

    /// Adds a module with these items, and its child modules.
    fn add(
        &mut self,
        tree: &Tree,
        path: &str,
        folder: &str,
        parent: Option<usize>,
        items: Vec<Item>,
    ) -> Result<usize, String> {
        let nth = self.all.len();
        self.all.push(Module {
            file: path.to_owned(),
            items: Vec::new(),
            parent,
            names: BTreeMap::new(),
            globs: Vec::new(),
        });
        let mut kept = Vec::new();
        for item in items {
            if attributes(&item).is_some_and(is_left_out) {
                continue;
            }
            if let Item::Mod(inner) = item {
                let name = inner.ident.unraw().to_string();
                if let Some(below) = self.read_inner(tree, path, folder, nth, inner)? {
                    self.name(nth, name, Meaning::Module(below));
                }
                continue;
            }
            self.note(nth, &item);
            kept.push(item);
        }
        self.all[nth].items = kept;
        Ok(nth)
    }

    /// Reads a `mod`: the items in its braces or, if it has no braces, the file with its name.
    /// Returns `None` if the tree does not have such a file.
    fn read_inner(
        &mut self,
        tree: &Tree,
        path: &str,
        folder: &str,
        around: usize,
        inner: ItemMod,
    ) -> Result<Option<usize>, String> {
        let folder = format!("{folder}/{}", inner.ident.unraw());
        if let Some((_, items)) = inner.content {
            return self.add(tree, path, &folder, Some(around), items).map(Some);
        }
        let mut places = [format!("{folder}.rs"), format!("{folder}/mod.rs")].into_iter();
        let Some(file) = places.find(|place| tree.file(place).is_some()) else {
            return Ok(None);
        };
        self.read_file(tree, &file, &folder, Some(around)).map(Some)
    }

    /// Records the names that an item brings into module `nth`.
    fn note(&mut self, nth: usize, item: &Item) {
        if let Item::Use(import) = item {
            for import in imports(import) {
                self.import(nth, import);
            }
        } else if let Some(name) = defined(item) {
            if let Item::Macro(_) = item {
                let file = self.all[nth].file.clone();
                self.macros.entry(name.clone()).or_default().insert(file);
            }
            self.name(nth, name, Meaning::Item);
        }
    }

    /// Records the name that an import brings into module `nth`.
    pub(super) fn import(&mut self, nth: usize, import: Import) {
        if import.glob {
            self.all[nth].globs.push(import.path);
        } else if let Some(name) = import.name {
            self.name(nth, name, Meaning::Import(import.path));
        }
    }

    fn name(&mut self, nth: usize, name: String, meaning: Meaning) {
        self.all[nth].names.entry(name).or_default().push(meaning);
    }

    /// Returns the files of the modules that contain module `nth`, except the file of module `nth`
    /// itself.
    pub(super) fn files_around(&self, nth: usize) -> BTreeSet<&str> {
        let own = &self.all[nth].file;
        let mut files = BTreeSet::new();
        let mut around = self.all[nth].parent;
        while let Some(module) = around.map(|nth| &self.all[nth]) {
            files.insert(module.file.as_str());
            around = module.parent;
        }
        files.remove(own.as_str());
        files
    }

    /// Returns the files that define the macro `name`, which is used without a path. All code after
    /// a `macro_rules!` macro can call the macro without a `use`.
    pub(super) fn defining_macro(&self, name: &str) -> BTreeSet<&str> {
        let files = self.macros.get(name).into_iter().flatten();
        files.map(String::as_str).collect()
    }
}

/// Returns the imports of a `use`, one by one. The result is empty if the path begins with `::`,
/// because such a path leads to another crate.
pub(super) fn imports(item: &ItemUse) -> Vec<Import> {
    let mut found = Vec::new();
    if item.leading_colon.is_none() {
        flatten(&item.tree, &[], &mut found);
    }
    found
}

/// Adds the imports of `tree` to `found`, one for each name in braces. `before` is the path in
/// front of `tree`.
fn flatten(tree: &UseTree, before: &[String], found: &mut Vec<Import>) {
    let (ident, name) = match tree {
        UseTree::Path(path) => {
            let next = [path.ident.unraw().to_string()];
            return flatten(&path.tree, &[before, &next].concat(), found);
        }
        UseTree::Group(group) => {
            return group
                .items
                .iter()
                .for_each(|tree| flatten(tree, before, found));
        }
        UseTree::Glob(glob) => {
            found.push(Import {
                path: before.to_owned(),
                name: None,
                glob: true,
                line: glob.star_token.spans[0].start().line,
            });
            return;
        }
        UseTree::Name(name) => (&name.ident, &name.ident),
        UseTree::Rename(rename) => (&rename.ident, &rename.rename),
    };
    let line = ident.span().start().line;
    let mut path = before.to_owned();
    if ident != "self" {
        path.push(ident.unraw().to_string());
    }
    // `use a::{self}` imports `a`.
    let name = if name == "self" {
        path.last().cloned()
    } else {
        Some(name.unraw().to_string())
    };
    found.push(Import {
        path,
        name: name.filter(|name| name != "_"),
        glob: false,
        line,
    });
}

/// Returns whether the `use` is a re-export. A module may re-export names that its own code does
/// not use.
pub(super) fn passes_on(item: &ItemUse) -> bool {
    !matches!(item.vis, Visibility::Inherited)
}

/// Returns the name that an item defines, if it defines one.
fn defined(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::TraitAlias(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(ident.unraw().to_string())
}

fn attributes(item: &Item) -> Option<&[Attribute]> {
    Some(match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => return None,
    })
}
