//! Parts of a document, written once: tables and remarks as text, as Markdown and as HTML.

use crate::html::{escape, with_code};
use std::fmt::Write;
use tidewater_base::units::printable;

/// Content of a cell.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cell {
    /// Plain text.
    pub text: String,
    /// Class on a page; may be empty.
    pub class: &'static str,
    /// Address that the text links to on a page.
    pub link: Option<String>,
    /// Name of the row on a page, by which others link to it.
    pub anchor: String,
    /// The text is a name in a program.
    pub is_code: bool,
    /// The best of its row.
    pub is_best: bool,
    /// A smaller figure beside the text.
    pub beside: Option<String>,
    /// Named remarks; on a page they stand below the row, as wide as the table.
    pub remarks: Vec<Remark>,
}

/// A named remark on a statement: `because`, and why.
pub(crate) type Remark = (&'static str, String);

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Cell {
        Cell { text: text.into(), ..Cell::default() }
    }
}

impl Cell {
    /// The text, or a dash where there is none.
    pub(crate) fn maybe(text: Option<impl Into<String>>) -> Cell {
        Cell::from(text.map_or_else(|| "–".to_owned(), Into::into))
    }

    /// The text in the code face.
    pub(crate) fn code(text: &str) -> Cell {
        Cell { is_code: true, ..text.into() }
    }

    /// The same with a class on a page.
    pub(crate) fn class(self, class: &'static str) -> Cell {
        Cell { class, ..self }
    }

    /// The same at the head of a row that has this anchor, with a name beside it that links there.
    pub(crate) fn anchor(self, anchor: String, name: &str) -> Cell {
        Cell { anchor, beside: Some(name.to_owned()), ..self }
    }

    /// The same with remarks.
    pub(crate) fn remarks(self, remarks: impl IntoIterator<Item = Remark>) -> Cell {
        Cell { remarks: remarks.into_iter().collect(), ..self }
    }

    fn text(&self, is_ranked: bool) -> String {
        let text = if self.text == "–" { "-".to_owned() } else { printable(&self.text) };
        let beside = self.beside.as_ref().map_or_else(String::new, |beside| format!(" ({beside})"));
        // Numbers stay in line with or without a star.
        let star = if self.is_best { " *" } else { "  " };
        format!("{text}{beside}{}", if is_ranked { star } else { "" })
    }

    /// The content as HTML.
    pub(crate) fn html(&self) -> String {
        let mut out = escape(&self.text).to_string();
        if self.is_code {
            out = format!("<code>{out}</code>");
        }
        if let Some(link) = &self.link {
            out = format!("<a href=\"{}\">{out}</a>", escape(link));
        }
        if self.is_best {
            out += " ★";
        }
        if let Some(beside) = &self.beside {
            let beside = escape(beside);
            let _ = match &*self.anchor {
                "" => write!(out, "<small>{beside}</small>"),
                anchor => write!(out, "<small><a href=\"#{}\">{beside}</a></small>", escape(anchor)),
            };
        }
        out
    }
}

/// Kind of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Names of the rows.
    Name,
    /// Short values.
    Value,
    /// Words, on the left and in several lines.
    Words,
}

/// A table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    /// Class on a page; may be empty.
    pub class: &'static str,
    /// Sentence above it on a page, with code between backticks; may be empty.
    pub caption: String,
    /// Kind and title of each column; without any, a page shows the rows alone.
    pub columns: Vec<(Kind, Cell)>,
    /// As many cells each as there are columns.
    pub rows: Vec<Vec<Cell>>,
    /// The best of each row has a star, and the text leaves room for it.
    pub is_ranked: bool,
    /// Least width of the names and of each other column, as text.
    pub least: (usize, usize),
}

impl Table {
    /// An empty table whose first column is of names, and the others of values.
    pub(crate) fn new<T: Into<Cell>>(first: &str, others: impl IntoIterator<Item = T>) -> Table {
        let others = others.into_iter().map(|title| (Kind::Value, title.into()));
        Table { columns: [(Kind::Name, first.into())].into_iter().chain(others).collect(), ..Table::default() }
    }

    /// An empty table of a class, with these columns.
    pub(crate) fn of<'a>(class: &'static str, columns: impl IntoIterator<Item = (Kind, &'a str)>) -> Table {
        let columns = columns.into_iter().map(|(kind, title)| (kind, title.into())).collect();
        Table { class, columns, ..Table::default() }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The same with these rows.
    pub(crate) fn with(mut self, rows: impl IntoIterator<Item = Vec<Cell>>) -> Table {
        self.rows.extend(rows);
        self
    }

    /// Width of a column as text.
    fn width(&self, i: usize) -> usize {
        let cells = self.rows.iter().map(|row| row[i].text(self.is_ranked && i > 0));
        let least = if i == 0 { self.least.0 } else { self.least.1 };
        cells.chain([self.columns[i].1.text(false)]).map(|text| text.chars().count()).fold(least, usize::max)
    }

    /// Leaves out the columns that do not fit into `width` characters as text, but for the first two.
    pub(crate) fn cut(&mut self, width: usize) {
        let mut used = 0;
        let fits = (0..self.columns.len()).take_while(|&i| {
            used += self.width(i) + if i == 0 { 0 } else { 2 };
            i < 2 || used <= width
        });
        let count = fits.count();
        self.columns.truncate(count);
        self.rows.iter_mut().for_each(|row| row.truncate(count));
    }

    /// Names on the left and values in line, at most `width` characters wide: columns that do not fit continue below,
    /// with the first two repeated.
    pub(crate) fn text(&self, width: usize) -> String {
        let widths: Vec<usize> = (0..self.columns.len()).map(|i| self.width(i)).collect();
        let mut out = String::new();
        let mut next = 2;
        loop {
            let mut shown: Vec<usize> = (0..widths.len().min(2)).collect();
            let mut used = shown.iter().map(|&i| widths[i] + 2).sum::<usize>() - 2;
            while next < widths.len() && (shown.len() <= 2 || used + 2 + widths[next] <= width) {
                used += 2 + widths[next];
                shown.push(next);
                next += 1;
            }
            let mut line = |cell: &dyn Fn(usize) -> String| {
                let mut line = format!("{:wide$}", cell(0), wide = widths[0]);
                for &i in &shown[1..] {
                    let _ = write!(line, "  {:>wide$}", cell(i), wide = widths[i]);
                }
                let _ = writeln!(out, "{}", line.trim_end());
            };
            line(&|i| self.columns[i].1.text(false));
            self.rows.iter().for_each(|row| line(&|i| row[i].text(self.is_ranked && i > 0)));
            if next >= widths.len() {
                return out;
            }
            out.push('\n');
        }
    }

    /// A table of Markdown, whose lines are not broken.
    pub(crate) fn markdown(&self) -> String {
        let line = |cells: &mut dyn Iterator<Item = &Cell>| {
            cells.fold("|".to_owned(), |line, cell| format!("{line} {} |", cell.text)) + "\n"
        };
        let rule = "---|".repeat(self.columns.len());
        let head = line(&mut self.columns.iter().map(|(_, title)| title));
        let rows: String = self.rows.iter().map(|row| line(&mut row.iter())).collect();
        format!("{head}|{rule}\n{rows}")
    }

    /// A table of HTML that can be read on narrow screens, where each cell names its column, and by keyboard.
    pub(crate) fn html(&self, out: &mut String) {
        if !self.columns.is_empty() {
            out.push_str("<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"table\">");
        }
        let _ = write!(out, "<table{}>", attribute("class", self.class));
        if !self.caption.is_empty() {
            let _ = write!(out, "<caption>{}</caption>", with_code(&self.caption));
        }
        if !self.columns.is_empty() {
            out.push_str("<thead><tr>");
            for (kind, title) in &self.columns {
                let tag = if title.text.is_empty() { "td" } else { "th" };
                let _ = write!(out, "<{tag}{}>{}</{tag}>", attribute("class", classes(*kind, "")), title.html());
            }
            out.push_str("</tr></thead>\n");
        }
        out.push_str("<tbody>\n");
        for row in &self.rows {
            // A row is marked as a whole by a cell that says no.
            let broken = row.iter().any(|cell| cell.class == "no") && self.class.contains("checks");
            let remarks: Vec<&Remark> = row.iter().flat_map(|cell| &cell.remarks).collect();
            let class = match (broken, remarks.is_empty()) {
                (true, true) => "broken",
                (true, false) => "broken remarked",
                (false, true) => "",
                (false, false) => "remarked",
            };
            let anchor = row.first().map_or("", |cell| &cell.anchor);
            let _ = write!(out, "<tr{}{}>", attribute("id", anchor), attribute("class", class));
            for (i, cell) in row.iter().enumerate() {
                let (kind, title) = self.columns.get(i).map_or((Kind::Value, ""), |(kind, title)| (*kind, &title.text));
                if kind == Kind::Name {
                    let _ = write!(out, "<th>{}</th>", cell.html());
                    continue;
                }
                let label = attribute("data-label", if i > 0 { title } else { "" });
                let class = attribute("class", classes(kind, if cell.is_best { "best" } else { cell.class }));
                let _ = write!(out, "<td{label}{class}>{}</td>", cell.html());
            }
            out.push_str("</tr>\n");
            if !remarks.is_empty() {
                let class = if broken { "broken remarks" } else { "remarks" };
                let _ = write!(out, "<tr class=\"{class}\"><td colspan=\"{}\">", row.len());
                for (i, (name, text)) in remarks.into_iter().enumerate() {
                    let gap = if i > 0 { "<br>" } else { "" };
                    let _ = write!(out, "{gap}<b>{name}</b> {}", with_code(text.trim()));
                }
                out.push_str("</td></tr>\n");
            }
        }
        out.push_str(if self.columns.is_empty() { "</tbody></table>" } else { "</tbody></table></div>\n" });
    }
}

fn classes(kind: Kind, own: &str) -> String {
    let words = if kind == Kind::Words { "words" } else { "" };
    format!("{words} {own}").trim().to_owned()
}

/// An attribute with a blank before it; nothing where it has no value.
fn attribute(name: &str, value: impl AsRef<str>) -> String {
    match value.as_ref() {
        "" => String::new(),
        value => format!(" {name}=\"{}\"", escape(value)),
    }
}

/// With a capital letter.
pub(crate) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// A statement with its mark and its remarks as text, indented by the width of the mark.
pub(crate) fn statement(out: &mut String, mark: &str, text: &str, remarks: &[Remark], width: usize) {
    let indent = " ".repeat(mark.chars().count());
    wrapped(out, mark, &indent, text, width);
    for (name, remark) in remarks {
        wrapped(out, &format!("{indent}{name:<10}"), &format!("{indent}{:10}", ""), remark, width);
    }
}

/// Words in lines; the first begins with `first`, the others with `rest`.
pub(crate) fn wrapped(out: &mut String, first: &str, rest: &str, text: &str, width: usize) {
    let mut line = first.to_owned();
    let mut empty = true;
    for word in printable(&text.replace('\n', " ")).split_whitespace() {
        if !empty && line.chars().count() + 1 + word.chars().count() > width {
            let _ = writeln!(out, "{}", line.trim_end());
            line = rest.to_owned();
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    let _ = writeln!(out, "{}", line.trim_end());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let best = Cell { is_best: true, beside: Some("-5 %".into()), ..Cell::from("12 µs") };
        let mut table = Table { is_ranked: true, ..Table::new("", ["one", "two & more", "three"]) };
        table.row(["mean".into(), "15 µs".into(), best, Cell::maybe(None::<String>)]);
        table
    }

    #[test]
    fn one_table_is_text_markdown_and_html() {
        assert_eq!(table().text(80), "          one      two & more  three\nmean  15 µs    12 µs (-5 %) *    -\n");
        let narrow = "          one      two & more\nmean  15 µs    12 µs (-5 %) *\n\n\
                      \x20         one  three\nmean  15 µs      -\n";
        assert_eq!(table().text(20), narrow, "the first value stands beside what does not fit");
        let markdown = "|  | one | two & more | three |\n|---|---|---|---|\n| mean | 15 µs | 12 µs | – |\n";
        assert_eq!(table().markdown(), markdown);
        let mut page = String::new();
        table().html(&mut page);
        assert!(page.contains("aria-label=\"table\"><table><thead><tr><td></td><th>one</th>"), "{page}");
        assert!(page.contains("<tr><th>mean</th><td data-label=\"one\">15 µs</td>"), "{page}");
        let marked = "<td data-label=\"two &amp; more\" class=\"best\">12 µs ★<small>-5 %</small></td>";
        assert!(page.contains(marked), "{page}");
        let mut cut = table();
        cut.cut(20);
        assert_eq!((cut.columns.len(), cut.rows[0].len()), (2, 2));
    }

    #[test]
    fn remarks_stand_below_their_statement() {
        let (remark, mut text) = (("because", " of <that> ".to_owned()), String::new());
        statement(&mut text, "no  ", "it holds", std::slice::from_ref(&remark), 20);
        assert_eq!(text, "no  it holds\n    because   of\n              <that>\n");
        let mut table = Table::of("checks", [(Kind::Words, "says"), (Kind::Value, "holds")]);
        table.row([Cell::from("it").remarks([remark]), Cell::from("no").class("no")]);
        table.row([Cell::from("that").anchor("a-b".into(), "b"), "yes".into()]);
        let mut page = String::new();
        table.html(&mut page);
        let row = "<tr class=\"broken remarked\"><td class=\"words\">it</td>\
                   <td data-label=\"holds\" class=\"no\">no</td></tr>\n\
                   <tr class=\"broken remarks\"><td colspan=\"2\"><b>because</b> of &lt;that&gt;</td></tr>";
        assert!(page.contains(row), "{page}");
        let named = "<tr id=\"a-b\"><td class=\"words\">that<small><a href=\"#a-b\">b</a></small></td>";
        assert!(page.contains(named), "{page}");
    }
}
