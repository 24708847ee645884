//! A probe as one HTML page: what was found, and the plots that it rests on.

use super::summary::headline;
use super::{Answer, ProbeRecord, Stage, Verdict};
use crate::document::{Cell, Kind, Table};
use crate::experiment::shown;
use crate::figure::{Figure, name_of};
use crate::html::{Page, escape};
use tidewater_base::units::{bytes, plural_exact, seconds};

/// One page with all verdicts and figures. Needs nothing else: no network.
pub fn page(record: &ProbeRecord) -> String {
    let target = &record.target;
    let title = format!("Caches and layout of {}", target.name);
    let (capacity, block) = (bytes(target.capacity_bytes), bytes(target.block_bytes));
    let lead = format!("{}, {capacity}, blocks of {block}", escape(&target.kind));
    let mut page = Page::new("caches and layout inferred from timing", &title, &lead);
    if let Some(why) = &record.ended_early {
        page.banner("ENDED EARLY", why);
    }
    let columns = ["what", "answer", "evidence"].map(|title| (Kind::Words, title));
    let verdicts = record.stages.iter().flat_map(|stage| &stage.verdicts);
    page.table(&Table::of("top checks", columns).with(verdicts.map(row)));
    record.stages.iter().for_each(|stage| section(&mut page, stage));
    page.footer(&format!("tidewater {}, seed {}", record.version, record.seed));
    page.finish(&format!("{title} – tidewater"))
}

fn row(verdict: &Verdict) -> Vec<Cell> {
    let class = match verdict.answer {
        Answer::Found => "yes",
        Answer::Absent => "",
        Answer::CannotTell => "muted",
    };
    let text = headline(verdict);
    let answer = text.split_once(": ").map_or(&*text, |(_, answer)| answer);
    vec![(&*verdict.what).into(), Cell::from(answer).class(class), (&*verdict.because).into()]
}

fn section(page: &mut Page, stage: &Stage) {
    // A stage that found what it needs in others has its verdicts alone, which are in the table.
    if stage.skipped.is_none() && stage.requests == 0 && stage.notes.is_empty() && stage.figures.is_empty() {
        return;
    }
    page.section(&stage.name, &stage.title);
    if let Some(why) = &stage.skipped {
        page.muted(&escape(why).to_string());
    }
    if stage.requests > 0 {
        page.muted(&format!(
            "{}, {} read, {} written, in {}",
            plural_exact(stage.requests, "request"),
            bytes(stage.bytes_read),
            bytes(stage.bytes_written),
            seconds(stage.seconds)
        ));
    }
    page.list(&stage.notes);
    page.few(&figures_of(stage));
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
