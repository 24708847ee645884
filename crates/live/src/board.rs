//! The page of what is made of figures and tables: a sweep, a cluster.

use crate::Level;
use crate::pages::{COMMON, File, Pages, Shown, serve_pages};
use crate::samples::unix_ms;
use serde::Serialize;
use std::collections::VecDeque;
use std::io;
use std::net::TcpListener;

/// Files of the page, besides those common to all pages.
const FILES: [File; 2] = [
    ("/", "text/html; charset=utf-8", include_str!("../assets/board.html")),
    ("/board.js", "text/javascript; charset=utf-8", include_str!("../assets/board.js")),
];
/// Events that are kept.
const EVENTS_MAX: usize = 200;

/// All that the page shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Board {
    /// In a word or two; "ended" is its last.
    pub state: String,
    /// The state is a bad one.
    pub bad: bool,
    /// The subject of the page, in a sentence; may be empty.
    pub note: String,
    /// The share that is done, 0 to 1; `None`: it has no end.
    pub share: Option<f64>,
    /// How far it is, in words.
    pub far: String,
    /// Figures: what it is, the figure, more on it.
    pub tiles: Vec<[String; 3]>,
    /// Tables: of one page always the same, and in one order.
    pub tables: Vec<Table>,
    /// The events.
    pub events: History,
}

/// A table.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Table {
    /// Its heading.
    pub title: String,
    /// A sentence under it; may be empty.
    pub note: String,
    /// Headings of the columns.
    pub columns: Vec<String>,
    /// Rows, each with a cell for each column; without any, only title and note are shown.
    pub rows: Vec<Vec<Cell>>,
}

/// A cell of a table.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Cell {
    /// Its text.
    pub text: String,
    /// A bar under it, of a length from 0 to 1.
    pub share: Option<f64>,
    /// It is bad.
    pub bad: bool,
}

impl Cell {
    /// A text.
    pub fn text(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), ..Cell::default() }
    }

    /// A text over a bar of this length.
    pub fn bar(text: impl Into<String>, share: f64) -> Cell {
        Cell { share: Some(share.clamp(0.0, 1.0)), ..Cell::text(text) }
    }

    /// A text on something bad.
    pub fn bad(text: impl Into<String>) -> Cell {
        Cell { bad: true, ..Cell::text(text) }
    }
}

/// Events, the oldest first: of more than 200 the last.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct History(VecDeque<Happened>);

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Happened {
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// How bad it is.
    pub level: Level,
    /// The event, in one line.
    pub what: String,
}

impl History {
    /// It happened now.
    pub fn add(&mut self, level: Level, what: impl Into<String>) {
        if self.0.len() == EVENTS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(Happened { at_ms: unix_ms(), level, what: what.into() });
    }

    /// All that is kept, the oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Happened> {
        self.0.iter()
    }
}

/// Serves the page from now on, with this title. `take` gives the board as it is now.
///
/// # Errors
/// When the system has no room for two threads.
pub fn serve_board(
    listener: TcpListener,
    names: Vec<String>,
    title: &str,
    mut take: impl FnMut() -> Board + Send + 'static,
) -> io::Result<Shown> {
    #[derive(Serialize)]
    struct About<'a> {
        title: &'a str,
    }
    let files = FILES.into_iter().chain(COMMON).collect();
    // A board is whole: the last one is all that a later viewer needs.
    let pages = Pages { files, about: serde_json::to_string(&About { title })?, names, kept: 1 };
    // Shares are finite, so a board can always be written.
    let next = move |_| serde_json::to_string(&take()).unwrap_or_else(|_| "{}".to_owned());
    serve_pages(listener, pages, Box::new(next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_keeps_its_newest_events_in_order() {
        let mut history = History::default();
        (0..EVENTS_MAX + 5).for_each(|number| history.add(Level::Note, number.to_string()));
        assert_eq!(history.iter().count(), EVENTS_MAX);
        assert_eq!(history.iter().next().map(|event| event.what.as_str()), Some("5"));
        let board = Board { events: history, ..Board::default() };
        let text = serde_json::to_value(&board).unwrap();
        assert_eq!((&text["events"][199]["what"], &text["share"]), (&"204".into(), &serde_json::Value::Null));
    }
}
