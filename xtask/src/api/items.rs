//! The public items of one file, as lines of text.

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::{
    Attribute, Fields, ImplItem, Item, ItemEnum, ItemImpl, ItemStruct, ItemTrait, TraitItem,
    Visibility,
};

/// Returns the public items of a file, in the order of the file.
pub(super) fn public(text: &str) -> Result<Vec<String>, String> {
    let file = syn::parse_file(text).map_err(|why| why.to_string())?;
    let mut listing = Listing {
        text,
        lines: Vec::new(),
    };
    file.items.iter().for_each(|item| listing.item(item));
    Ok(listing.lines)
}

struct Listing<'t> {
    text: &'t str,
    lines: Vec<String>,
}

impl Listing<'_> {
    /// Returns the text from the start of `from` to the end of `to`, in one line.
    fn between(&self, from: Span, to: Span) -> String {
        let range = from.byte_range().start..to.byte_range().end;
        let words: Vec<&str> = self.text[range].split_whitespace().collect();
        words.join(" ")
    }

    fn of(&self, part: &impl Spanned) -> String {
        self.between(part.span(), part.span())
    }

    fn item(&mut self, item: &Item) {
        match item {
            Item::Fn(item) if is_public(&item.vis, &item.attrs) => {
                self.lines
                    .push(self.between(item.vis.span(), item.sig.span()));
            }
            Item::Const(item) if is_public(&item.vis, &item.attrs) => {
                self.lines
                    .push(self.between(item.vis.span(), item.ty.span()));
            }
            Item::Static(item) if is_public(&item.vis, &item.attrs) => {
                self.lines
                    .push(self.between(item.vis.span(), item.ty.span()));
            }
            Item::Type(item) if is_public(&item.vis, &item.attrs) => {
                self.lines
                    .push(self.between(item.vis.span(), item.ty.span()));
            }
            Item::Use(item) if is_public(&item.vis, &item.attrs) => {
                self.lines
                    .push(self.between(item.vis.span(), item.tree.span()));
            }
            Item::Mod(item) if is_public(&item.vis, &item.attrs) => {
                self.lines.push(format!("pub mod {}", item.ident));
            }
            Item::Struct(item) if is_public(&item.vis, &item.attrs) => self.structure(item),
            Item::Enum(item) if is_public(&item.vis, &item.attrs) => self.enumeration(item),
            Item::Trait(item) if is_public(&item.vis, &item.attrs) => self.interface(item),
            Item::Impl(item) if !is_test(&item.attrs) => self.implementation(item),
            _ => {}
        }
    }

    fn structure(&mut self, item: &ItemStruct) {
        let name = &item.ident;
        self.lines
            .push(format!("pub struct {name}{}", self.of(&item.generics)));
        for (nth, field) in item.fields.iter().enumerate() {
            if matches!(field.vis, Visibility::Public(_)) {
                let ty = self.of(&field.ty);
                let field = field
                    .ident
                    .as_ref()
                    .map_or(nth.to_string(), ToString::to_string);
                self.lines.push(format!("{name}.{field}: {ty}"));
            }
        }
    }

    fn enumeration(&mut self, item: &ItemEnum) {
        let name = &item.ident;
        self.lines
            .push(format!("pub enum {name}{}", self.of(&item.generics)));
        for variant in &item.variants {
            let types = variant.fields.iter().map(|field| {
                let ty = self.of(&field.ty);
                field
                    .ident
                    .as_ref()
                    .map_or(ty.clone(), |name| format!("{name}: {ty}"))
            });
            let types = types.collect::<Vec<_>>().join(", ");
            let fields = match variant.fields {
                Fields::Named(_) => format!(" {{ {types} }}"),
                Fields::Unnamed(_) => format!("({types})"),
                Fields::Unit => String::new(),
            };
            self.lines
                .push(format!("{name}::{}{fields}", variant.ident));
        }
    }

    fn interface(&mut self, item: &ItemTrait) {
        let name = &item.ident;
        let above = self.of(&item.supertraits);
        let above = if above.is_empty() {
            above
        } else {
            format!(": {above}")
        };
        let generics = self.of(&item.generics);
        self.lines
            .push(format!("pub trait {name}{generics}{above}"));
        for item in &item.items {
            let text = match item {
                TraitItem::Fn(item) => match item.default {
                    Some(_) => format!("{} (default)", self.of(&item.sig)),
                    None => self.of(&item.sig),
                },
                TraitItem::Const(item) => format!("const {}: {}", item.ident, self.of(&item.ty)),
                TraitItem::Type(item) => format!("type {}{}", item.ident, self.of(&item.generics)),
                _ => continue,
            };
            self.lines.push(format!("{name}::{text}"));
        }
    }

    fn implementation(&mut self, item: &ItemImpl) {
        let of = self.of(&item.self_ty);
        if let Some((path, _)) = &item.trait_ {
            let generics = self.of(&item.generics);
            self.lines
                .push(format!("impl{generics} {} for {of}", self.of(path)));
            return;
        }
        for item in &item.items {
            let text = match item {
                ImplItem::Fn(item) if is_public(&item.vis, &item.attrs) => self.of(&item.sig),
                ImplItem::Const(item) if is_public(&item.vis, &item.attrs) => {
                    format!("const {}: {}", item.ident, self.of(&item.ty))
                }
                _ => continue,
            };
            self.lines.push(format!("{of}::{text}"));
        }
    }
}

fn is_public(visibility: &Visibility, attributes: &[Attribute]) -> bool {
    matches!(visibility, Visibility::Public(_)) && !is_test(attributes)
}

/// Returns whether an item exists only in tests.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let list = attribute.meta.require_list().ok();
        attribute.path().is_ident("cfg")
            && list.is_some_and(|list| matches!(&*list.tokens.to_string(), "test" | "doctest"))
    })
}

#[cfg(test)]
mod tests {
    use super::public;

    #[test]
    fn every_kind_of_item_is_a_line_and_private_ones_are_not() {
        let text = "
            pub mod inner;
            mod hidden;
            pub use self::hidden::{A, B};
            pub const N: u32 = 3;
            /// A function does something.
            pub fn f<T: Clone>(
                x: &T, // A comment here is part of the line.
            ) -> u32
            where
                T: Send,
            { 3 }
            fn g() {}
            pub(crate) fn h() {}
            pub struct S<'a, T> { pub a: &'a T, b: u8 }
            pub struct P(pub u32, u8);
            pub enum E { One, Two(u32), Three { a: u8 } }
            pub trait Tr: Send + Sync { const C: u8; type T; fn a(&self) -> u8; fn b(&self) {} }
            impl Tr for P {}
            impl<T> S<'_, T> { pub fn new() -> Self { loop {} } fn no() {} }
            #[cfg(test)]
            pub fn only_in_tests() {}
        ";
        let expected = [
            "pub mod inner",
            "pub use self::hidden::{A, B}",
            "pub const N: u32",
            "pub fn f<T: Clone>( x: &T, // A comment here is part of the line. ) -> u32 where T: Send,",
            "pub struct S<'a, T>",
            "S.a: &'a T",
            "pub struct P",
            "P.0: u32",
            "pub enum E",
            "E::One",
            "E::Two(u32)",
            "E::Three { a: u8 }",
            "pub trait Tr: Send + Sync",
            "Tr::const C: u8",
            "Tr::type T",
            "Tr::fn a(&self) -> u8",
            "Tr::fn b(&self) (default)",
            "impl Tr for P",
            "S<'_, T>::fn new() -> Self",
        ];
        assert_eq!(public(text).expect("it is Rust"), expected);
    }
}
