//! The names that the code of a module uses: in `use`, in paths, and in the arguments of macros.

use proc_macro2::{Spacing, TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::visit::{self, Visit};
use syn::{Field, ImplItem, Item, ItemMod, ItemUse, Macro, Path, Stmt};

use super::conditions::is_left_out;
use super::modules::{Import, imports, passes_on};

/// The names that the code of one module uses.
#[derive(Default)]
pub(super) struct Names {
    pub(super) paths: Vec<Named>,
    /// Names of macros that are called without a path.
    pub(super) macros: Vec<Named>,
    /// The imports inside functions, which are not among the imports of the module.
    pub(super) inner: Vec<Import>,
    /// The nesting depth of the visited item: the number of items that enclose it, plus one for the
    /// item itself.
    depth: usize,
}

/// A path, and the line on which it is written.
pub(super) struct Named {
    pub(super) path: Vec<String>,
    pub(super) line: usize,
}

impl Names {
    pub(super) fn of(items: &[Item]) -> Self {
        let mut names = Self::default();
        items.iter().for_each(|item| names.visit_item(item));
        names
    }

    /// Finds paths in tokens: names separated by `::`, and single names.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut line = 0;
        // The number of colons after the last name of the path.
        let mut colons = 0;
        let mut before = ' ';
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.end(&mut path, line);
                    } else if path.is_empty() {
                        // An empty first name stands for a leading `::`, so the path leads to
                        // another crate.
                        path.push(String::new());
                    }
                    // A name after `.` is a field or a method, and a name after `'` is a lifetime.
                    if path.is_empty() && matches!(before, '.' | '\'') {
                        (colons, before) = (0, ' ');
                        continue;
                    }
                    line = ident.span().start().line;
                    path.push(ident.unraw().to_string());
                    colons = 0;
                    before = ' ';
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => {
                    let joint = punct.spacing() == Spacing::Joint || colons == 1;
                    colons = if joint && !path.is_empty() {
                        colons + 1
                    } else {
                        0
                    };
                    before = ':';
                }
                TokenTree::Group(group) => {
                    self.end(&mut path, line);
                    self.tokens(group.stream());
                    (colons, before) = (0, ' ');
                }
                TokenTree::Punct(punct) => {
                    self.end(&mut path, line);
                    // A name after `..` is not a field.
                    let is_range = before == '.' && punct.as_char() == '.';
                    (colons, before) = (0, if is_range { ' ' } else { punct.as_char() });
                }
                TokenTree::Literal(_) => {
                    self.end(&mut path, line);
                    (colons, before) = (0, ' ');
                }
            }
        }
        self.end(&mut path, line);
    }

    fn end(&mut self, path: &mut Vec<String>, line: usize) {
        let path = std::mem::take(path);
        if !path.is_empty() {
            self.paths.push(Named { path, line });
        }
    }
}

impl<'a> Visit<'a> for Names {
    fn visit_item(&mut self, item: &'a Item) {
        self.depth += 1;
        visit::visit_item(self, item);
        self.depth -= 1;
    }

    fn visit_item_mod(&mut self, _: &'a ItemMod) {
        // This visitor meets only modules inside functions. The repository has no such modules, so
        // this function does not search them for names.
    }

    fn visit_item_use(&mut self, item: &'a ItemUse) {
        for import in imports(item) {
            if !passes_on(item) {
                self.paths.push(Named {
                    path: import.path.clone(),
                    line: import.line,
                });
            }
            // This code does not add imports outside functions, because the module already has
            // them.
            if self.depth > 1 {
                self.inner.push(import);
            }
        }
    }

    fn visit_impl_item(&mut self, item: &'a ImplItem) {
        let attributes = match item {
            ImplItem::Const(item) => &item.attrs,
            ImplItem::Fn(item) => &item.attrs,
            ImplItem::Type(item) => &item.attrs,
            _ => return visit::visit_impl_item(self, item),
        };
        if !is_left_out(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_field(&mut self, field: &'a Field) {
        if !is_left_out(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_stmt(&mut self, statement: &'a Stmt) {
        let left_out = match statement {
            Stmt::Local(local) => is_left_out(&local.attrs),
            Stmt::Macro(call) => is_left_out(&call.attrs),
            _ => false,
        };
        if !left_out {
            visit::visit_stmt(self, statement);
        }
    }

    fn visit_attribute(&mut self, _: &'a syn::Attribute) {
        // Names in attributes, such as derives, do not count as edges between files.
    }

    fn visit_path(&mut self, path: &'a Path) {
        if path.leading_colon.is_none()
            && let Some(first) = path.segments.first()
        {
            let names = path
                .segments
                .iter()
                .map(|one| one.ident.unraw().to_string());
            self.paths.push(Named {
                path: names.collect(),
                line: first.ident.span().start().line,
            });
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'a Macro) {
        if let Some(ident) = call.path.get_ident() {
            self.macros.push(Named {
                path: vec![ident.unraw().to_string()],
                line: ident.span().start().line,
            });
        }
        visit::visit_macro(self, call);
        self.tokens(call.tokens.clone());
    }
}
