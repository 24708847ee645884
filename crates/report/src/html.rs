//! Pages of HTML, and text inside them.

use crate::document::{Cell, Table};
use crate::figure::Figure;
use std::fmt::{self, Write};

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

/// A page that is being written: text is plain unless it is called HTML.
pub(crate) struct Page {
    header: String,
    body: String,
    /// Identifier and title of each section.
    sections: Vec<(String, String)>,
}

impl Page {
    /// A page with its header: the kind of page, its title, and a lead as HTML, which may be empty.
    pub(crate) fn new(kind: &str, title: &str, lead: &str) -> Page {
        let lead = if lead.is_empty() { String::new() } else { format!("<p class=\"lead\">{lead}</p>\n") };
        let (kind, title) = (escape(kind), escape(title));
        let header = format!("<header>\n<p class=\"kind\">Tidewater: {kind}</p>\n<h1>{title}</h1>\n{lead}</header>\n");
        Page { header, body: String::with_capacity(128 << 10), sections: Vec::new() }
    }

    /// HTML as it is.
    pub(crate) fn html(&mut self, html: &str) {
        self.body.push_str(html);
    }

    /// Begins a section; those of a page with several are linked at its top.
    pub(crate) fn section(&mut self, id: &str, title: &str) {
        let (id, title) = (escape(id).to_string(), escape(title).to_string());
        let _ = writeln!(self.body, "<h2 id=\"{id}\">{title}</h2>");
        self.sections.push((id, title));
    }

    /// Begins a part of a section.
    pub(crate) fn heading(&mut self, title: &str) {
        let _ = writeln!(self.body, "<h3>{}</h3>", escape(title));
    }

    /// A paragraph of HTML.
    pub(crate) fn paragraph(&mut self, html: &str) {
        let _ = writeln!(self.body, "<p>{html}</p>");
    }

    /// A quieter paragraph of HTML, which explains the page.
    pub(crate) fn muted(&mut self, html: &str) {
        let _ = writeln!(self.body, "<p class=\"muted\">{html}</p>");
    }

    /// A warning at the head of the page.
    pub(crate) fn banner(&mut self, mark: &str, text: &str) {
        let (mark, text) = (escape(mark), escape(text));
        let _ = writeln!(self.body, "<div class=\"banner\" role=\"alert\"><b>{mark}</b> {text}</div>");
    }

    /// Notes on the figures' validity, with code between backticks; nothing where there are none.
    pub(crate) fn notes<'a>(&mut self, notes: impl IntoIterator<Item = &'a String>) {
        let notes = items(notes);
        if !notes.is_empty() {
            let head = "<div class=\"notes\"><b>Before you believe the figures</b>";
            let _ = writeln!(self.body, "{head}\n<ul>{notes}</ul></div>");
        }
    }

    /// A list, with code between backticks; nothing where it is empty.
    pub(crate) fn list<'a>(&mut self, list: impl IntoIterator<Item = &'a String>) {
        let list = items(list);
        if !list.is_empty() {
            let _ = writeln!(self.body, "<ul class=\"prose\">{list}</ul>");
        }
    }

    /// Names with their values, side by side.
    pub(crate) fn facts<N: AsRef<str>>(&mut self, facts: impl IntoIterator<Item = (N, impl Into<Cell>)>) {
        self.body.push_str("<dl class=\"settings\">\n");
        for (name, value) in facts {
            let value = value.into();
            let class = if value.class.is_empty() { String::new() } else { format!(" class=\"{}\"", value.class) };
            let name = escape(name.as_ref());
            let _ = writeln!(self.body, "<div><dt>{name}</dt><dd{class}>{}</dd></div>", value.html());
        }
        self.body.push_str("</dl>\n");
    }

    /// A table.
    pub(crate) fn table(&mut self, table: &Table) {
        table.html(&mut self.body);
    }

    /// A command, or other text in lines.
    pub(crate) fn command(&mut self, text: &str) {
        let _ = writeln!(self.body, "<pre>{}</pre>", escape(text));
    }

    /// Parts that a click on `summary` opens.
    pub(crate) fn details(&mut self, summary: &str, parts: impl FnOnce(&mut Page)) {
        let _ = writeln!(self.body, "<details><summary>{}</summary>", escape(summary));
        parts(self);
        self.body.push_str("</details>\n");
    }

    /// Key figures in tiles.
    pub(crate) fn tiles(&mut self, tiles: impl IntoIterator<Item = Tile>) {
        self.body.push_str("<section class=\"tiles\" aria-label=\"Key figures\">\n");
        for [title, value, more] in tiles {
            let (number, unit) = value.split_once(' ').unwrap_or((&value, ""));
            let _ = writeln!(
                self.body,
                "<div class=\"tile\"><div class=\"what\">{}</div><div class=\"figure\">{} <small>{}</small></div>\
                 <div class=\"more\">{}</div></div>",
                escape(&title),
                escape(number),
                escape(unit),
                // A number and its per cent sign stay on one line.
                escape(&more.replace(" %", "\u{a0}%"))
            );
        }
        self.body.push_str("</section>\n");
    }

    /// These figures, one below the other.
    pub(crate) fn figures<'f>(&mut self, figures: impl IntoIterator<Item = &'f Figure<'f>>) {
        figures.into_iter().for_each(|figure| figure.html(&mut self.body));
    }

    /// These figures side by side; nothing where there are none.
    pub(crate) fn pair(&mut self, figures: &[Figure]) {
        if !figures.is_empty() {
            self.body.push_str("<div class=\"pair\">\n");
            self.figures(figures);
            self.body.push_str("</div>\n");
        }
    }

    /// These figures: side by side where there are several, else over the whole page.
    pub(crate) fn few(&mut self, figures: &[Figure]) {
        if figures.len() > 1 { self.pair(figures) } else { self.figures(figures) }
    }

    /// The line at the end of the page.
    pub(crate) fn footer(&mut self, text: &str) {
        let _ = writeln!(self.body, "<footer>{}.</footer>", escape(text));
    }

    /// The whole document, with this title.
    pub(crate) fn finish(self, title: &str) -> String {
        let Page { header, body, sections } = self;
        let mut contents = String::new();
        for (i, (id, title)) in sections.iter().enumerate() {
            if sections.len() > 1 && sections[..i].iter().all(|(other, _)| other != id) {
                let _ = write!(contents, "<li><a href=\"#{id}\">{title}</a></li>");
            }
        }
        if !contents.is_empty() {
            contents = format!("<nav class=\"contents\" aria-label=\"Contents\"><ul>{contents}</ul></nav>\n");
        }
        // The policy is the promise that nothing is fetched, kept by the browser.
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
             script-src 'unsafe-inline'\">\n\
             <title>{}</title>\n<style>\n{}</style>\n\
             <style id=\"paper\" media=\"not all\">\n{}</style>\n</head>\n<body>\n<main>\n{header}{contents}{body}\
             </main>\n<div id=\"tip\" role=\"status\" hidden></div>\n<script>\n{}{}</script>\n</body>\n</html>\n",
            escape(title),
            include_str!("page/style.css"),
            crate::plot::STYLE,
            include_str!("page/script.js"),
            include_str!("page/explore.js"),
        )
    }
}

/// A key figure: its name, its value (a number, a space, a unit), and more on it.
pub(crate) type Tile = [String; 3];

fn items<'a>(items: impl IntoIterator<Item = &'a String>) -> String {
    items.into_iter().map(|item| format!("<li>{}</li>", with_code(item))).collect()
}

/// Text in which what stands between backticks is code. A backtick without another is one.
pub(crate) fn with_code(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, (code, after))) =
        rest.split_once('`').and_then(|(before, behind)| Some((before, behind.split_once('`')?)))
    {
        let _ = write!(out, "{}<code>{}</code>", escape(before), escape(code));
        rest = after;
    }
    let _ = write!(out, "{}", escape(rest));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_stays_text() {
        let text = escape("<script a=\"b\" c='d'>&\u{0}\u{7f}é\n").to_string();
        assert_eq!(text, "&lt;script a=&quot;b&quot; c=&#39;d&#39;&gt;&amp;\u{fffd}\u{fffd}é\n");
    }

    #[test]
    fn what_stands_between_backticks_is_code() {
        assert_eq!(with_code("then `s` < `d`, once"), "then <code>s</code> &lt; <code>d</code>, once");
        assert_eq!(with_code("a ` alone"), "a ` alone");
    }

    #[test]
    fn the_sections_of_a_page_are_linked_where_there_are_several() {
        let page = |titles: &[&str]| {
            let mut page = Page::new("a kind", "A <title>", "");
            titles.iter().for_each(|title| page.section(&title[..1], title));
            page.finish("t")
        };
        let html = page(&["a & b", "c"]);
        assert!(html.contains("<h1>A &lt;title&gt;</h1>\n</header>\n<nav class=\"contents\""), "{html}");
        assert!(html.contains("<li><a href=\"#a\">a &amp; b</a></li><li><a href=\"#c\">c</a></li>"), "{html}");
        assert!(!page(&["alone"]).contains("<nav"));
    }
}
