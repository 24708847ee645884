//! The ledger as parts of an HTML page.

use super::{Line, Tally, Verdict, by_source, headline, tallies};
use crate::html::escape;
use std::fmt::Write;

/// The headline, and a table of the counts by source.
pub(crate) fn contents(out: &mut String, lines: &[Line<'_>]) {
    let _ = writeln!(out, "<p class=\"lead\">{}</p>\n</header>", escape(&headline(lines)));
    let all = Tally::of(lines);
    let columns: Vec<Verdict> = Verdict::ALL.into_iter().filter(|verdict| all.count(*verdict) > 0).collect();
    out.push_str("<div class=\"scroll\"><table class=\"top\"><thead><tr><th>source</th><th>statements</th>");
    for verdict in &columns {
        let _ = write!(out, "<th>{}</th>", verdict.name());
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for (source, group, tally) in tallies(lines) {
        let _ = write!(out, "<tr><td>{}, {group}</td><td>{}</td>", escape(&source.name), tally.sum());
        for verdict in &columns {
            let _ = write!(out, "<td>{}</td>", tally.count(*verdict));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
}

/// Every statement, a table for each source.
pub(crate) fn lines(out: &mut String, lines: &[Line<'_>]) {
    out.push_str("<h2 id=\"ledger\">Every statement</h2>\n");
    for (source, of) in by_source(lines) {
        let _ = write!(
            out,
            "<h3>{}</h3>\n<div class=\"scroll\"><table class=\"top checks\"><caption>{}</caption><thead><tr>\
             <th class=\"words\">where</th><th class=\"words\">the source says</th><th class=\"words\">ours</th>\
             <th>verdict</th></tr></thead>\n<tbody>\n",
            escape(&source.name),
            escape(&format!("{}; read: {}", source.title, source.read))
        );
        for line in of {
            let (row, class) = match line.verdict {
                Verdict::Shown | Verdict::ByFit => ("", "yes"),
                Verdict::Differs => (" class=\"broken\"", "no"),
                _ => ("", "muted"),
            };
            let mut says = escape(&line.statement.says).to_string();
            let mut ours = escape(&line.ours).to_string();
            let part = |to: &mut String, name: &str, text: &str| {
                let gap = if to.is_empty() { "" } else { "<br>" };
                let _ = write!(to, "{gap}<b>{name}</b> {}", escape(text.trim()));
            };
            if let Some(value) = &line.statement.value {
                part(&mut says, "value", value);
            }
            if let Some(follows) = &line.statement.follows {
                part(&mut ours, "follows", follows);
            }
            if !line.statement.fitted.is_empty() {
                part(&mut ours, "fitted", &line.statement.fitted.join("; "));
            }
            if let Some(because) = &line.because {
                part(&mut ours, "because", because);
            }
            if let Some(note) = &line.statement.note {
                part(&mut ours, "note", note);
            }
            let _ = writeln!(
                out,
                "<tr{row}><td class=\"words\">{}</td><td class=\"words\">{says}</td><td class=\"words\">{ours}</td>\
                 <td class=\"{class}\">{}</td></tr>",
                escape(&line.statement.at),
                line.verdict.name()
            );
        }
        out.push_str("</tbody></table></div>\n");
    }
}
