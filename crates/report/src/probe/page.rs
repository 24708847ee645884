//! A probe as one HTML page: what was found, and the plots that it rests on.

use super::summary::headline;
use super::{Answer, ProbeRecord, Stage};
use crate::experiment::shown;
use crate::figure::{self, Figure, name_of};
use crate::html::{document, escape};
use std::fmt::Write;
use tidewater_base::units::{bytes, plural_exact, seconds};

/// One page with all verdicts and figures. Needs nothing else: no network.
pub fn page(record: &ProbeRecord) -> String {
    let mut body = String::with_capacity(64 << 10);
    let target = &record.target;
    let title = format!("Caches and layout of {}", target.name);
    let _ = writeln!(
        body,
        "<header>\n<p class=\"kind\">Tidewater: caches and layout inferred from timing</p>\n<h1>{}</h1>\n\
         <p class=\"lead\">{}, {}, blocks of {}</p>\n</header>",
        escape(&title),
        escape(&target.kind),
        bytes(target.capacity_bytes),
        bytes(target.block_bytes)
    );
    if let Some(why) = &record.ended_early {
        let _ = writeln!(body, "<div class=\"banner\" role=\"alert\"><b>ENDED EARLY</b> {}</div>", escape(why));
    }
    verdicts(&mut body, record);
    for stage in &record.stages {
        section(&mut body, stage);
    }
    let _ = writeln!(body, "<footer>tidewater {}, seed {}.</footer>", escape(&record.version), record.seed);
    document(&format!("{title} – tidewater"), &body)
}

fn verdicts(out: &mut String, record: &ProbeRecord) {
    out.push_str(
        "<div class=\"scroll\"><table class=\"top checks\"><thead><tr><th class=\"words\">what</th><th \
         class=\"words\">answer</th>\
         <th class=\"words\">evidence</th></tr></thead>\n<tbody>\n",
    );
    for verdict in record.stages.iter().flat_map(|stage| &stage.verdicts) {
        let class = match verdict.answer {
            Answer::Found => "words yes",
            Answer::Absent => "words",
            Answer::CannotTell => "words muted",
        };
        let text = headline(verdict);
        let answer = text.split_once(": ").map_or(&*text, |(_, answer)| answer);
        let _ = writeln!(
            out,
            "<tr><td class=\"words\">{}</td><td class=\"{class}\">{}</td><td class=\"words\">{}</td></tr>",
            escape(&verdict.what),
            escape(answer),
            escape(&verdict.because)
        );
    }
    out.push_str("</tbody></table></div>\n");
}

fn section(out: &mut String, stage: &Stage) {
    // A stage that found what it needs in others has its verdicts alone, which are in the table.
    if stage.skipped.is_none() && stage.requests == 0 && stage.notes.is_empty() && stage.figures.is_empty() {
        return;
    }
    let _ = writeln!(out, "<h2 id=\"{}\">{}</h2>", escape(&stage.name), escape(&stage.title));
    if let Some(why) = &stage.skipped {
        let _ = writeln!(out, "<p class=\"muted\">{}</p>", escape(why));
    }
    if stage.requests > 0 {
        let _ = writeln!(
            out,
            "<p class=\"muted\">{}, {} read, {} written, in {}</p>",
            plural_exact(stage.requests, "request"),
            bytes(stage.bytes_read),
            bytes(stage.bytes_written),
            seconds(stage.seconds)
        );
    }
    if !stage.notes.is_empty() {
        out.push_str("<ul class=\"prose\">");
        stage.notes.iter().for_each(|note| {
            let _ = write!(out, "<li>{}</li>", escape(note));
        });
        out.push_str("</ul>\n");
    }
    let figures = figures_of(stage);
    if figures.len() > 1 { figure::pair(out, &figures) } else { figure::all(out, &figures) }
}

/// Every figure of the page, in its order.
pub fn figures(record: &ProbeRecord) -> Vec<Figure<'_>> {
    record.stages.iter().flat_map(figures_of).collect()
}

fn figures_of(stage: &Stage) -> Vec<Figure<'_>> {
    shown(&name_of(&stage.name), &stage.figures)
}

#[cfg(test)]
mod tests {
    use super::super::tests::record;
    use super::*;
    use crate::experiment::{Figure, Form, Point, Series};

    #[test]
    fn verdicts_and_plots_are_on_the_page() {
        let mut record = record();
        record.target.name = "<b>".into();
        record.ended_early = Some("interrupted".into());
        record.stages[0].figures.push(Figure {
            title: "Read, and read again".into(),
            form: Form::Lines,
            x_label: "KiB".into(),
            y_label: "µs".into(),
            x_log: true,
            y_log: false,
            series: vec![Series {
                name: "second pass".into(),
                from_paper: false,
                points: [(4.0, 10.0), (8.0, 60.0)].map(|(x, y)| Point { x, y, spread: None }).to_vec(),
            }],
        });
        let page = page(&record);
        for part in ["&lt;b&gt;", "ENDED EARLY", "32 KiB", "<svg class=\"plot\"", "Read, and read again"] {
            assert!(page.contains(part), "{part}");
        }
        assert!(!page.contains("<b>:"));
    }
}
