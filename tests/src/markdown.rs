//! Generated pages of the reference: their lines end where those of other pages end. The tests of each crate that
//! generate pages include this file.

/// Columns of a line at most.
pub const COLUMNS: usize = 120;

/// A page in Markdown whose wide lines of prose, and items of lists, go on in the next line. Code and tables stay.
pub fn wrap(page: &str) -> String {
    let (mut out, mut fenced) = (String::with_capacity(page.len() + page.len() / 16), false);
    for line in page.lines() {
        fenced ^= line.starts_with("```");
        let is_prose = !fenced && !line.starts_with("    ") && !line.starts_with(['|', '#', '<', '`']);
        if is_prose || line.starts_with('`') && !line.starts_with("```") {
            wrap_line(line, &mut out);
        } else {
            out.push_str(line);
        }
        out.push('\n');
    }
    out
}

fn wrap_line(line: &str, out: &mut String) {
    let indent = if line.starts_with("- ") { "  " } else { "" };
    let mut columns = 0;
    for (number, word) in line.split(' ').enumerate() {
        let width = word.chars().count();
        // A word that Markdown takes for a mark at the begin of a line stays behind the one before it.
        let is_mark = word.is_empty() || word.starts_with(['-', '+', '*', '#', '>']) && width < 3;
        let is_mark = is_mark || ["1.", "1)"].contains(&word);
        if number > 0 && columns + 1 + width > COLUMNS && !is_mark {
            out.push('\n');
            out.push_str(indent);
            columns = indent.len();
        } else if number > 0 {
            out.push(' ');
            columns += 1;
        }
        out.push_str(word);
        columns += width;
    }
}
