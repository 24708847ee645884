//! Final additions to every page's body: contents, labels of stacked cells, keyboard focus where it scrolls.

use std::fmt::Write;

/// `body` with contents behind its header, and tables that can be read on narrow screens and by keyboard.
pub(crate) fn finish(body: &str) -> String {
    let body = body
        .replace("<div class=\"scroll\">", "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"table\">")
        .replace("<tr><th></th>", "<tr><td></td>");
    let mut out = String::with_capacity(body.len() + body.len() / 4);
    let mut rest = body.as_str();
    while let Some((before, table)) = rest.split_once("<table") {
        out.push_str(before);
        let (table, after) = table.split_once("</table>").unwrap_or((table, ""));
        labelled(&mut out, table);
        rest = after;
    }
    out.push_str(rest);
    match out.split_once("</header>\n") {
        Some((header, content)) => format!("{header}</header>\n{}{content}", contents(content)),
        None => out,
    }
}

/// Links to the sections, if there are several.
fn contents(body: &str) -> String {
    let sections: Vec<(&str, &str)> = body
        .split("<h2 id=\"")
        .skip(1)
        .filter_map(|section| section.split_once("</h2>")?.0.split_once("\">"))
        .collect();
    if sections.len() < 2 {
        return String::new();
    }
    let mut out = "<nav class=\"contents\" aria-label=\"Contents\"><ul>".to_owned();
    for (i, (id, title)) in sections.iter().enumerate() {
        if sections[..i].iter().all(|(other, _)| other != id) {
            let _ = write!(out, "<li><a href=\"#{id}\">{title}</a></li>");
        }
    }
    out + "</ul></nav>\n"
}

/// A table, without its opening and closing words; each cell of its body names its column.
fn labelled(out: &mut String, table: &str) {
    let (head, body) = table.split_once("<tbody").unwrap_or(("", table));
    let heads: Vec<String> = cells(head).map(|(_, cell)| text(cell)).collect();
    let _ = write!(out, "<table{head}");
    if heads.is_empty() {
        let _ = write!(out, "{}{body}</table>", if head.is_empty() { "" } else { "<tbody" });
        return;
    }
    out.push_str("<tbody");
    for (i, row) in body.split("<tr").enumerate() {
        if i > 0 {
            out.push_str("<tr");
        }
        let mut from = 0;
        for (column, (at, _)) in cells(row).enumerate() {
            let name = heads.get(column).filter(|name| column > 0 && !name.is_empty());
            if let Some(name) = name.filter(|_| row[at..].starts_with("<td")) {
                let _ = write!(out, "{}<td data-label=\"{name}\"", &row[from..at]);
                from = at + 3;
            }
        }
        out.push_str(&row[from..]);
    }
    out.push_str("</table>");
}

/// The cells of a row, or of a table's head: where each begins, and it from its first word on.
fn cells(row: &str) -> impl Iterator<Item = (usize, &str)> {
    row.match_indices("<t")
        .map(|(at, _)| (at, &row[at..]))
        .filter(|(_, cell)| ["<td>", "<td ", "<th>", "<th "].iter().any(|start| cell.starts_with(start)))
}

/// The text of a cell, which ends where its tag does; still escaped.
fn text(cell: &str) -> String {
    let end = ["</th>", "</td>"].iter().filter_map(|tag| cell.find(tag)).min().unwrap_or(cell.len());
    let mut text = String::new();
    for piece in cell[..end].split('<').skip(1) {
        text.push_str(piece.split_once('>').map_or("", |(_, words)| words));
        text.push(' ');
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_name_their_columns_and_sections_are_linked() {
        let page = finish(
            "<header>h</header>\n<h2 id=\"a\">A &amp; B</h2>\n<div class=\"scroll\"><table><thead><tr><th></th>\
             <th class=\"words\">one <small>s</small></th></tr></thead>\n<tbody>\n<tr><th>x</th><td>1</td></tr>\n\
             </tbody></table></div><h2 id=\"b\">C</h2>\n<table><tr><td>free</td></tr></table>",
        );
        assert!(page.contains("</header>\n<nav class=\"contents\""), "{page}");
        assert!(page.contains("<li><a href=\"#a\">A &amp; B</a></li><li><a href=\"#b\">C</a></li>"), "{page}");
        assert!(page.contains("<tbody>\n<tr><th>x</th><td data-label=\"one s\">1</td></tr>"), "{page}");
        assert!(page.contains("<table><tr><td>free</td></tr></table>"), "{page}");
        assert!(page.contains("<tr><td></td><th class") && page.contains("tabindex=\"0\""), "{page}");
        assert_eq!(finish("<h2 id=\"a\">alone</h2>"), "<h2 id=\"a\">alone</h2>");
    }
}
