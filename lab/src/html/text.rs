//! Text as HTML.

/// Escapes `text`, so that a browser shows each of its characters as it is.
pub(super) fn escape(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            other => html.push(other),
        }
    }
    html
}

/// Escapes `text`, and shows each part between two backticks as code.
pub(super) fn code(text: &str) -> String {
    let mut html = String::new();
    let mut parts = text.split('`').enumerate().peekable();
    while let Some((nth, part)) = parts.next() {
        let is_code = nth % 2 == 1;
        match (is_code, parts.peek()) {
            (false, _) => html.push_str(&escape(part)),
            (true, Some(_)) => html.push_str(&format!("<code>{}</code>", escape(part))),
            // A backtick without a partner stays a backtick.
            (true, None) => html.push_str(&format!("`{}", escape(part))),
        }
    }
    html
}

/// Replaces each `{{name}}` in `template` by the value of that name. A `{{name}}` inside a value is
/// not replaced.
///
/// # Panics
/// If `values` has no value for a name in the template.
pub(super) fn fill(template: &str, values: &[(&str, String)]) -> String {
    let mut parts = template.split("{{");
    let mut filled = parts.next().unwrap_or("").to_owned();
    for part in parts {
        let (name, rest) = part.split_once("}}").expect("a place ends");
        let (_, value) = values
            .iter()
            .find(|(known, _)| *known == name)
            .expect("a place of the template has a value");
        filled.push_str(value);
        filled.push_str(rest);
    }
    filled
}

/// Escapes JSON for a `script` element, so that no text in the JSON can end the element.
pub(super) fn in_script(json: &str) -> String {
    json.replace('<', "\\u003c")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_between_backticks() {
        assert_eq!(code("`a<b` and c"), "<code>a&lt;b</code> and c");
        assert_eq!(code("a ` b"), "a ` b");
        assert_eq!(code("`a`"), "<code>a</code>");
    }

    #[test]
    fn values_with_braces_are_not_places() {
        let values = [("a", "{{b}}".to_owned()), ("b", "2".to_owned())];
        assert_eq!(fill("x{{a}}y{{b}}z", &values), "x{{b}}y2z");
    }

    #[test]
    fn no_text_ends_the_script() {
        assert_eq!(
            in_script(r#"{"a":"</script>"}"#),
            r#"{"a":"\u003c/script>"}"#
        );
    }
}
