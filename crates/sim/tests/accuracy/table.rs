//! Rows, and the page that shows them.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Mutex;

/// Serializes writers of the page.
static PAGE: Mutex<()> = Mutex::new(());

/// Tolerance of a result.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    /// Measured and expected differ by at most this share.
    Within(f64),
    /// They differ by rounding to picoseconds only.
    Exact,
    /// Measured is at most this.
    AtMost,
    /// Measured is at least this, less what the closed form is known to: half a percent.
    AtLeast,
}

/// One comparison.
#[derive(Clone, Debug)]
pub struct Row {
    pub what: String,
    pub form: String,
    pub expected: f64,
    pub measured: f64,
    pub unit: &'static str,
    pub bound: Bound,
}

impl Row {
    pub fn deviation(&self) -> f64 {
        self.measured / self.expected - 1.0
    }

    fn holds(&self) -> bool {
        match self.bound {
            Bound::Within(share) => self.deviation().abs() <= share,
            Bound::Exact => self.deviation().abs() <= 1e-6,
            Bound::AtMost => self.measured <= self.expected,
            Bound::AtLeast => self.measured >= 0.995 * self.expected,
        }
    }

    fn line(&self) -> String {
        let (deviation, bound) = match self.bound {
            Bound::Within(share) => (percent(self.deviation()), format!("{} %", share * 100.0)),
            Bound::Exact => (percent(self.deviation()), "exact".into()),
            Bound::AtMost => ("-".into(), "at most".into()),
            Bound::AtLeast => ("-".into(), "at least".into()),
        };
        let (what, form, expected, measured) = (&self.what, &self.form, number(self.expected), number(self.measured));
        let unit = if self.unit.is_empty() { String::new() } else { format!(" {}", self.unit) };
        format!("| {what} | {form} | {expected}{unit} | {measured}{unit} | {deviation} | {bound} |")
    }
}

fn percent(share: f64) -> String {
    let text = format!("{:+.2} %", share * 100.0);
    if text == "-0.00 %" || text == "+0.00 %" { "0.00 %".into() } else { text }
}

/// Enough digits to compare, and no more: the last digits of a logarithm may differ between mathematical libraries.
pub fn number(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 1_000.0 => 0,
        v if v >= 100.0 => 1,
        v if v >= 10.0 => 2,
        v if v >= 0.1 => 3,
        _ => 4,
    };
    format!("{value:.digits$}")
}

/// One table of the page, between `<!-- ID -->` and `<!-- end ID -->`.
#[derive(Clone, Debug)]
pub struct Section {
    pub id: &'static str,
    pub rows: Vec<Row>,
}

impl Section {
    pub fn outside(&self) -> Vec<String> {
        self.rows.iter().filter(|row| !row.holds()).map(|row| format!("{}: {}", self.id, row.line())).collect()
    }

    pub fn table(&self) -> String {
        let mut text = String::from(
            "\n| what | closed form | expected | measured | deviation | bound |\n|---|---|---|---|---|---|\n",
        );
        for row in &self.rows {
            writeln!(text, "{}", row.line()).expect("a string can be written");
        }
        text
    }

    /// Asserts that the page shows this table, after writing it there if `UPDATE_DOCS` is set.
    pub fn check_page(&self) {
        check_page(self.id, &self.table());
    }
}

/// Asserts that the page says `text` between the marks of `id`, after writing it there if `UPDATE_DOCS` is set.
pub fn check_page(id: &str, text: &str) {
    let _alone = PAGE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/internals/accuracy.md");
    let page = std::fs::read_to_string(&path).expect("docs/internals/accuracy.md can be read");
    let (start, end) = (format!("<!-- {id} -->\n"), format!("<!-- end {id} -->"));
    let from = page.find(&start).unwrap_or_else(|| panic!("no {start} in {}", path.display())) + start.len();
    let to = from + page[from..].find(&end).unwrap_or_else(|| panic!("no {end} in {}", path.display()));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let page = format!("{}{text}\n{}", &page[..from], &page[to..]);
        return std::fs::write(&path, page).expect("docs/internals/accuracy.md can be written");
    }
    assert!(
        page[from..to] == format!("{text}\n"),
        "`{id}` in docs/internals/accuracy.md is not what is found: run UPDATE_DOCS=1 cargo test -p tidewater-sim \
         --test all accuracy\nfound:\n{text}\nwritten:\n{}",
        &page[from..to]
    );
}
