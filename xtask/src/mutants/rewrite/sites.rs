//! Finds the expressions and functions that mutants change.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::ops::Range;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{
    BinOp, Block, Expr, ExprBinary, ExprMatch, ExprStruct, ExprUnary, GenericArgument, ImplItemFn,
    ItemFn, ItemImpl, ItemTrait, PatGuard, Signature, TraitItemFn, Type,
};

use super::{FnName, Numbered};
use crate::mutants::change::{Change, Genre};

/// The sites (places in the text) and functions that the mutants of a file change. The sites are in
/// the order of the text. If two sites begin at the same byte, the outer site comes first.
#[derive(Default)]
pub(super) struct Found {
    pub(super) sites: Vec<Site>,
    /// For each function, the byte range of its body.
    pub(super) functions: Vec<Range<usize>>,
    /// The numbers of the mutants that get no switch, because the compiler evaluates their code, or
    /// because `Finder` does not support the place of the change.
    pub(super) constant: Vec<usize>,
    /// The numbers of the mutants that put `||` beside a `let` in a condition, which Rust forbids.
    pub(super) forbidden: Vec<usize>,
}

/// A place in the source text that is rewritten, so that a switch can turn on the mutants that
/// change this place.
pub(super) struct Site {
    pub(super) bytes: Range<usize>,
    pub(super) form: Form,
    pub(super) mutants: Vec<Version>,
}

/// The kind of a place in the code. It determines how the place is rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Form {
    /// The keyword `const` of a function, which the rewritten text leaves out.
    Const,
    /// The beginning of a function's body, where the mutants return early.
    Body,
    /// An expression that ends with a block, such as a `match`. The replacement also ends with a
    /// block. So it needs no semicolon if the original expression needed none.
    Block,
    /// Any other expression; its replacement is put into parentheses.
    Operand,
}

/// One changed version of an expression, or one early return.
pub(super) struct Version {
    pub(super) number: usize,
    /// The bytes of the original text that are replaced.
    pub(super) replaced: Range<usize>,
    pub(super) replacement: String,
}

/// Returns the sites (places in the text) and functions that the mutants change in `file`, whose
/// text is `text`.
pub(super) fn find(
    file: &syn::File,
    text: &str,
    mutants: &[Numbered<'_>],
    constants: &BTreeSet<FnName>,
) -> Found {
    let mut wanted: BTreeMap<(Genre, usize), Vec<(usize, &Change)>> = BTreeMap::new();
    for (number, change) in mutants {
        let start = change.span(text).start;
        let there = wanted.entry((change.genre, start)).or_default();
        there.push((*number, change));
    }
    let mut finder = Finder {
        text,
        constants,
        wanted,
        sites: BTreeMap::new(),
        found: Found::default(),
        owner: None,
        constant: false,
        chain: None,
    };
    finder.visit_file(file);
    let mut found = finder.found;
    // The mutants that were not found are at places that the visitor does not support, so these
    // mutants have to be built without a switch.
    let missed = finder.wanted.into_values().flatten();
    found.constant.extend(missed.map(|(number, _)| number));
    let site = |((start, Reverse(end)), (form, mutants))| Site {
        bytes: start..end,
        form,
        mutants,
    };
    found.sites = finder.sites.into_iter().map(site).collect();
    found
}

/// The byte range of a site (a place that is rewritten), as its beginning and its end. In ascending
/// order, a site comes before the sites inside it.
type Bytes = (usize, Reverse<usize>);

struct Finder<'a> {
    text: &'a str,
    constants: &'a BTreeSet<FnName>,
    /// The mutants that were not found yet, by the kind of change and by the first byte that they
    /// replace.
    wanted: BTreeMap<(Genre, usize), Vec<(usize, &'a Change)>>,
    sites: BTreeMap<Bytes, (Form, Vec<Version>)>,
    found: Found,
    /// The type or trait whose functions are visited.
    owner: Option<String>,
    /// True if the compiler evaluates the code that is visited.
    constant: bool,
    /// The byte range of the chain of operators and operands that is visited; `None` outside a
    /// chain. A chain has no parentheses between its operators. A mutant that replaces one operator
    /// may change the order in which the operators of the chain are applied. So the whole chain is
    /// rewritten.
    chain: Option<Range<usize>>,
}

impl Finder<'_> {
    /// Notes that the mutants of kind `genre` at byte `start` change the site (the place in the
    /// text) with the byte range `bytes`.
    fn site(&mut self, genre: Genre, start: usize, bytes: &Range<usize>, form: Form) {
        let Some(mutants) = self.wanted.remove(&(genre, start)) else {
            return;
        };
        if self.constant {
            let numbers = mutants.into_iter().map(|(number, _)| number);
            self.found.constant.extend(numbers);
            return;
        }
        let key = (bytes.start, Reverse(bytes.end));
        let there = self.sites.entry(key).or_insert((form, Vec::new()));
        there.0 = there.0.min(form);
        there
            .1
            .extend(mutants.into_iter().map(|(number, change)| Version {
                number,
                replaced: change.span(self.text),
                replacement: change.replacement.clone(),
            }));
    }

    fn in_constant(&mut self, visit: impl FnOnce(&mut Self)) {
        let before = mem::replace(&mut self.constant, true);
        self.apart(visit);
        self.constant = before;
    }

    /// Visits code that is not part of the chain of operators around it, such as the arguments of a
    /// call.
    fn apart(&mut self, visit: impl FnOnce(&mut Self)) {
        let before = self.chain.take();
        visit(self);
        self.chain = before;
    }

    fn in_owner(&mut self, owner: Option<String>, visit: impl FnOnce(&mut Self)) {
        let before = mem::replace(&mut self.owner, owner);
        visit(self);
        self.owner = before;
    }

    fn function(
        &mut self,
        signature: &Signature,
        body: Option<&Block>,
        visit: impl FnOnce(&mut Self),
    ) {
        let mut constant = false;
        if let Some(token) = &signature.constness {
            constant = self
                .constants
                .contains(&(self.owner.clone(), signature.ident.to_string()));
            if !constant {
                let bytes = token.span.byte_range();
                let key = (bytes.start, Reverse(bytes.end));
                self.sites.insert(key, (Form::Const, Vec::new()));
            }
        }
        let before = mem::replace(&mut self.constant, constant);
        if let Some(body) = body {
            self.found.functions.push(body.span().byte_range());
            if let Some(first) = body.stmts.first() {
                let start = first.span().byte_range().start;
                self.site(Genre::FnValue, start, &(start..start), Form::Body);
            }
        }
        self.apart(visit);
        self.constant = before;
    }
}

/// Returns whether a condition is a `let`, or a chain of `&&` with a `let` in it.
fn has_let(expression: &Expr) -> bool {
    match expression {
        Expr::Let(_) => true,
        Expr::Binary(binary) if matches!(binary.op, BinOp::And(_)) => {
            has_let(&binary.left) || has_let(&binary.right)
        }
        _ => false,
    }
}

fn last_name(of: &Type) -> Option<String> {
    match of {
        Type::Path(path) => Some(path.path.segments.last()?.ident.to_string()),
        Type::Reference(reference) => last_name(&reference.elem),
        _ => None,
    }
}

impl<'a> Visit<'a> for Finder<'_> {
    fn visit_item_impl(&mut self, item: &'a ItemImpl) {
        self.in_owner(last_name(&item.self_ty), |finder| {
            visit::visit_item_impl(finder, item);
        });
    }

    fn visit_item_trait(&mut self, item: &'a ItemTrait) {
        self.in_owner(Some(item.ident.to_string()), |finder| {
            visit::visit_item_trait(finder, item);
        });
    }

    fn visit_item_fn(&mut self, item: &'a ItemFn) {
        self.in_owner(None, |finder| {
            finder.function(&item.sig, Some(&item.block), |finder| {
                visit::visit_item_fn(finder, item);
            });
        });
    }

    fn visit_impl_item_fn(&mut self, item: &'a ImplItemFn) {
        self.function(&item.sig, Some(&item.block), |finder| {
            visit::visit_impl_item_fn(finder, item);
        });
    }

    fn visit_trait_item_fn(&mut self, item: &'a TraitItemFn) {
        self.function(&item.sig, item.default.as_ref(), |finder| {
            visit::visit_trait_item_fn(finder, item);
        });
    }

    fn visit_item_const(&mut self, item: &'a syn::ItemConst) {
        self.in_constant(|finder| visit::visit_item_const(finder, item));
    }

    fn visit_item_static(&mut self, item: &'a syn::ItemStatic) {
        self.in_constant(|finder| visit::visit_item_static(finder, item));
    }

    fn visit_impl_item_const(&mut self, item: &'a syn::ImplItemConst) {
        self.in_constant(|finder| visit::visit_impl_item_const(finder, item));
    }

    fn visit_trait_item_const(&mut self, item: &'a syn::TraitItemConst) {
        self.in_constant(|finder| visit::visit_trait_item_const(finder, item));
    }

    fn visit_variant(&mut self, variant: &'a syn::Variant) {
        self.in_constant(|finder| visit::visit_variant(finder, variant));
    }

    fn visit_const_param(&mut self, parameter: &'a syn::ConstParam) {
        self.in_constant(|finder| visit::visit_const_param(finder, parameter));
    }

    fn visit_expr_const(&mut self, block: &'a syn::ExprConst) {
        self.in_constant(|finder| visit::visit_expr_const(finder, block));
    }

    fn visit_type_array(&mut self, array: &'a syn::TypeArray) {
        self.in_constant(|finder| visit::visit_type_array(finder, array));
    }

    fn visit_expr_repeat(&mut self, array: &'a syn::ExprRepeat) {
        self.apart(|finder| finder.visit_expr(&array.expr));
        self.in_constant(|finder| finder.visit_expr(&array.len));
    }

    fn visit_generic_argument(&mut self, argument: &'a GenericArgument) {
        match argument {
            GenericArgument::Const(_) | GenericArgument::AssocConst(_) => {
                self.in_constant(|finder| visit::visit_generic_argument(finder, argument));
            }
            _ => visit::visit_generic_argument(self, argument),
        }
    }

    fn visit_expr(&mut self, expression: &'a Expr) {
        match expression {
            Expr::Binary(_) => visit::visit_expr(self, expression),
            _ => self.apart(|finder| visit::visit_expr(finder, expression)),
        }
    }

    fn visit_expr_binary(&mut self, binary: &'a ExprBinary) {
        let operator = binary.op.span().byte_range().start;
        if has_let(&binary.left) || has_let(&binary.right) {
            let mutants = self.wanted.remove(&(Genre::BinaryOperator, operator));
            let numbers = mutants.into_iter().flatten().map(|(number, _)| number);
            self.found.forbidden.extend(numbers);
            self.apart(|finder| visit::visit_expr_binary(finder, binary));
            return;
        }
        let around = self.chain.clone();
        let chain = around.unwrap_or_else(|| binary.span().byte_range());
        self.site(Genre::BinaryOperator, operator, &chain, Form::Operand);
        let before = self.chain.replace(chain);
        visit::visit_expr_binary(self, binary);
        self.chain = before;
    }

    fn visit_expr_unary(&mut self, unary: &'a ExprUnary) {
        let operator = unary.op.span().byte_range().start;
        let bytes = unary.span().byte_range();
        self.site(Genre::UnaryOperator, operator, &bytes, Form::Operand);
        visit::visit_expr_unary(self, unary);
    }

    fn visit_expr_match(&mut self, expression: &'a ExprMatch) {
        let bytes = expression.span().byte_range();
        for arm in &expression.arms {
            let start = arm.span().byte_range().start;
            self.site(Genre::MatchArm, start, &bytes, Form::Block);
        }
        visit::visit_expr_match(self, expression);
    }

    fn visit_pat_guard(&mut self, guarded: &'a PatGuard) {
        let bytes = guarded.guard.span().byte_range();
        self.site(Genre::MatchArmGuard, bytes.start, &bytes, Form::Operand);
        visit::visit_pat_guard(self, guarded);
    }

    fn visit_expr_struct(&mut self, literal: &'a ExprStruct) {
        let bytes = literal.span().byte_range();
        for field in &literal.fields {
            let start = field.span().byte_range().start;
            self.site(Genre::StructField, start, &bytes, Form::Operand);
        }
        visit::visit_expr_struct(self, literal);
    }
}
