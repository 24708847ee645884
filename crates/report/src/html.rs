//! Text inside HTML.

use std::fmt;

/// Foreign text, written so that it stays text: in an element, and in an attribute between double quotes.
pub(crate) struct Escaped<'a>(pub &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(at) = rest.find(|c: char| "&<>\"'".contains(c) || c.is_control()) {
            let (plain, special) = rest.split_at(at);
            f.write_str(plain)?;
            let character = special.chars().next().expect("the search found one");
            match character {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                '\n' => f.write_str("\n")?,
                // HTML has no spelling for the other control characters.
                _ => f.write_str("\u{fffd}")?,
            }
            rest = &special[character.len_utf8()..];
        }
        f.write_str(rest)
    }
}

/// Escapes `text`.
pub(crate) fn escape(text: &str) -> Escaped<'_> {
    Escaped(text)
}

/// A whole document. `head_title` is plain text, `body` is HTML.
pub(crate) fn document(head_title: &str, body: &str) -> String {
    let body = crate::page::finish(body);
    // The policy is the promise that nothing is fetched, kept by the browser.
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         script-src 'unsafe-inline'\">\n\
         <title>{}</title>\n<style>\n{}</style>\n\
         <style id=\"paper\" media=\"not all\">\n{}</style>\n</head>\n<body>\n<main>\n{body}</main>\n\
         <div id=\"tip\" role=\"status\" hidden></div>\n<script>\n{}{}</script>\n</body>\n</html>\n",
        escape(head_title),
        include_str!("page/style.css"),
        crate::plot::STYLE,
        include_str!("page/script.js"),
        include_str!("page/explore.js"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_stays_text() {
        let text = escape("<script a=\"b\" c='d'>&\u{0}\u{7f}é\n").to_string();
        assert_eq!(text, "&lt;script a=&quot;b&quot; c=&#39;d&#39;&gt;&amp;\u{fffd}\u{fffd}é\n");
    }
}
