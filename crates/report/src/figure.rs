//! A figure of a page: its name, how to read it, its numbers, and its plot at any width.

use crate::html::escape;
use crate::plot::{Margins, Plot, units};
use crate::table::Table;
use std::fmt::Write;

/// Width of a plot on a telephone, in pixels.
const NARROW: f64 = 368.0;

/// A figure.
pub struct Figure<'a> {
    name: String,
    title: String,
    /// HTML.
    how: String,
    /// Its width on the page.
    width: f64,
    data: Table,
    /// The figure of the same page that has the same numbers.
    data_of: Option<String>,
    draw: Box<dyn Fn(f64) -> Plot + 'a>,
}

impl<'a> Figure<'a> {
    /// A figure that is `width` wide on its page. `how` is HTML.
    pub(crate) fn new(
        name: impl Into<String>,
        title: impl Into<String>,
        how: impl Into<String>,
        width: f64,
        data: Table,
        draw: impl Fn(f64) -> Plot + 'a,
    ) -> Figure<'a> {
        Figure {
            name: name.into(),
            title: title.into(),
            how: how.into(),
            width,
            data: data.finite(),
            data_of: None,
            draw: Box::new(draw),
        }
    }

    /// The same, with the numbers of another figure of its page, which holds them once.
    pub(crate) fn with_data_of(self, name: &str) -> Figure<'a> {
        Figure { data_of: Some(name.to_owned()), ..self }
    }

    /// The same under another name.
    pub(crate) fn named(self, name: impl Into<String>) -> Figure<'a> {
        Figure { name: name.into(), ..self }
    }

    /// Its name: lower case, words by `-`; one name is one figure of a page.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its title, in a few words.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Its title, and how it is read.
    pub fn caption(&self) -> String {
        let how = plain(&self.how);
        let title = self.title.trim_end_matches('.');
        if how.is_empty() { format!("{title}.") } else { format!("{title}. {how}") }
    }

    /// The numbers that it shows, unrounded.
    pub fn data(&self) -> &Table {
        &self.data
    }

    /// The figure as an SVG document on a light ground, `millimetres` wide, with room beyond its edges: what stands
    /// there, as a foreign label may, is not cut off.
    pub fn svg(&self, millimetres: f64, margins: Margins) -> String {
        (self.draw)(units(millimetres)).document(&self.caption(), margins)
    }

    /// The figure as a part of its page, with its numbers, which the page's script can save.
    pub(crate) fn html(&self, out: &mut String) {
        let (plot, narrow) = ((self.draw)(self.width), (self.draw)(NARROW));
        let from =
            self.data_of.as_ref().map_or_else(String::new, |name| format!(" data-from=\"figure-{}\"", escape(name)));
        let _ = writeln!(
            out,
            "<figure id=\"figure-{}\"{from}>\n<figcaption><h3>{}</h3><p>{}</p></figcaption>",
            escape(&self.name),
            escape(&self.title),
            self.how
        );
        if !plot.body.is_empty() {
            out.push_str(&plot.html(Some(&narrow)));
            if self.data_of.is_none() {
                let _ = writeln!(out, "<pre class=\"data\" hidden>{}</pre>", escape(&self.data.csv()));
            }
        }
        out.push_str("</figure>\n");
    }
}

/// A name made from words: `Read p99.9` is `read-p99-9`.
pub(crate) fn name_of(words: &str) -> String {
    crate::table::column_name(words).replace('_', "-")
}

/// The text of a piece of HTML.
fn plain(html: &str) -> String {
    let mut text = String::new();
    let mut rest = html;
    while let Some((before, tag)) = rest.split_once('<') {
        text.push_str(before);
        rest = tag.split_once('>').map_or("", |(_, after)| after);
    }
    text.push_str(rest);
    for (entity, character) in [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&amp;", "&")] {
        text = text.replace(entity, character);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caption_is_text() {
        assert_eq!(plain("a <b>b</b> &lt;c&gt; &amp;amp; <code>d</code>"), "a b <c> &amp; d");
        assert_eq!(name_of("Read p99.9"), "read-p99-9");
    }
}
