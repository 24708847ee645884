//! The table at the head of `docs/guide/databases.md`: commits per second by what a commit waits for. `make
//! bench-databases ARGS='--record "MACHINE AND DISK"'` writes it.

use tidewater_base::units::grouped;

/// The page, from the root of the checkout.
pub const PAGE: &str = "docs/guide/databases.md";

const BEGIN: &str = "<!-- The table that make bench-databases writes with --record -->\n";
const END: &str = "<!-- End of the table -->\n";

/// A row: medians, in commits per second.
#[derive(Clone, Debug, PartialEq)]
pub struct Gain {
    /// The database and what was run.
    pub workload: &'static str,
    /// Clients at the same time.
    pub clients: u32,
    /// The database's own flush.
    pub own: f64,
    /// `tidewater run --level destaged`.
    pub destaged: f64,
    /// How many times as many as with the own flush: the median of the rounds' own ratios.
    pub destaged_of_own: f64,
    /// `tidewater run --level ring`.
    pub ring: f64,
    /// The database's flush switched off.
    pub none: f64,
}

/// The table in Markdown. `machine` names processor, disk and date; each figure is the median of `rounds` rounds of
/// `seconds`.
pub fn table(gains: &[Gain], machine: &str, rounds: usize, seconds: f64) -> String {
    let mut text = String::from(
        "| commits per second | clients | own flush | DESTAGED | RING | no flush |\n|---|---:|---:|---:|---:|---:|\n",
    );
    for gain in gains {
        let rate = |value: f64| grouped(value.round() as u64);
        text += &format!(
            "| {} | {} | {} | {} ({:.2}) | {} | {} |\n",
            gain.workload,
            gain.clients,
            rate(gain.own),
            rate(gain.destaged),
            gain.destaged_of_own,
            rate(gain.ring),
            rate(gain.none)
        );
    }
    let plural = if rounds == 1 { "" } else { "s" };
    text += &format!("\n{machine}.\nMedians of {rounds} round{plural} of {seconds} s, by this command:\n\n");
    text += &format!("    make bench-databases ARGS='--rounds {rounds} --seconds {seconds}'\n");
    text
}

/// The page with this table in place of the one that it has.
///
/// # Errors
/// The page has no place for it.
pub fn replace(page: &str, table: &str) -> Result<String, String> {
    let begin = page.find(BEGIN).map(|at| at + BEGIN.len());
    let end = begin.and_then(|begin| page[begin..].find(END).map(|at| begin + at));
    let (Some(begin), Some(end)) = (begin, end) else {
        return Err(format!("{PAGE} lacks the lines '{}' and '{}'", BEGIN.trim_end(), END.trim_end()));
    };
    Ok(format!("{}\n{table}\n{}", &page[..begin], &page[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gains() -> Vec<Gain> {
        let gain = Gain {
            workload: "A, commits",
            clients: 1,
            own: 1000.4,
            destaged: 1499.6,
            destaged_of_own: 1.504,
            ring: 12_345.0,
            none: 1_234_567.0,
        };
        vec![gain.clone(), Gain { workload: "B, `puts`", clients: 64, own: 7.0, ..gain }]
    }

    #[test]
    fn the_table_has_a_row_for_each_load() {
        let expected = "\
| commits per second | clients | own flush | DESTAGED | RING | no flush |
|---|---:|---:|---:|---:|---:|
| A, commits | 1 | 1,000 | 1,500 (1.50) | 12,345 | 1,234,567 |
| B, `puts` | 64 | 7 | 1,500 (1.50) | 12,345 | 1,234,567 |

One core, 2026-01-02; a disk.
Medians of 7 rounds of 2.5 s, by this command:

    make bench-databases ARGS='--rounds 7 --seconds 2.5'
";
        assert_eq!(table(&gains(), "One core, 2026-01-02; a disk", 7, 2.5), expected);
    }

    #[test]
    fn the_table_is_replaced_and_nothing_else_of_the_page() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(PAGE);
        let page = std::fs::read_to_string(path).expect("the page can be read");
        let made_up = table(&gains(), "One core; a disk", 1, 2.0);
        let replaced = replace(&page, &made_up).expect("the page has a place for the table");
        assert!(replaced.contains(&made_up) && !page.contains(&made_up));
        assert_eq!(replace(&replaced, &made_up).as_ref(), Ok(&replaced));
        let around = |page: &str| {
            let (head, rest) = page.split_once(BEGIN).expect("the table has its first mark");
            (head.to_owned(), rest.split_once(END).expect("the table has its last mark").1.to_owned())
        };
        assert_eq!(around(&page), around(&replaced));
        // And what is written once more has the form of what stands there.
        let heads = |page: &str| page.lines().find(|line| line.starts_with("| commits")).map(str::to_owned);
        assert_eq!(heads(&page), heads(&replaced));
        assert!(replace("a page without a table\n", &made_up).is_err());
        assert!(replace(&format!("{END}{BEGIN}"), &made_up).is_err());
    }
}
