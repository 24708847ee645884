use crate::markdown::{COLUMNS, wrap};

#[test]
fn lines_of_prose_end_and_code_stays() {
    let long = "word ".repeat(60).trim_end().to_owned();
    let page = wrap(&format!("{long}\n- {long}\n    {long}\n```\n{long}\n```\n`a` {long}\n"));
    let wide: Vec<&str> = page.lines().filter(|line| line.chars().count() > COLUMNS).collect();
    assert_eq!(wide, [format!("    {long}").as_str(), long.as_str()]);
    assert_eq!(page.matches("\n  word").count(), 2, "an item goes on below its text: {page}");
    assert_eq!(page.split_whitespace().count(), 5 * 60 + 4);
}

#[test]
fn no_line_begins_with_a_mark() {
    for mark in ["-", "*", "1.", "#"] {
        let page = wrap(&format!("{} {mark} rest", "x".repeat(COLUMNS - 1)));
        assert_eq!(page.lines().nth(1), Some("rest"), "{page}");
    }
}
