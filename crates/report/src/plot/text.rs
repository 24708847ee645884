//! Words of a plot, and how wide they are: plots leave room for them before a font has drawn them.

use crate::html::escape;
use std::fmt::Write;

/// Draws `text` at a place; by its start, or as `anchor` says: `middle` or `end`.
pub(super) fn draw(out: &mut String, class: &str, (x, y): (f64, f64), anchor: &str, text: &str) {
    let anchor = if anchor.is_empty() { String::new() } else { format!(" text-anchor=\"{anchor}\"") };
    let text = escape(text);
    let _ = writeln!(out, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\"{anchor}>{text}</text>");
}

/// Widths of the printable ASCII characters in Inter Regular, in thousandths of the font's size. Fonts of the page's
/// list are about as wide.
const WIDTHS: [u16; 95] = [
    281, 288, 466, 633, 642, 982, 644, 300, 365, 365, 501, 662, 288, 460, 288, 360, 631, 407, 610, 618, 646, 593, 620,
    566, 619, 620, 288, 302, 662, 662, 662, 511, 966, 690, 654, 730, 722, 601, 590, 746, 743, 269, 571, 672, 565, 903,
    753, 765, 639, 765, 644, 642, 646, 744, 690, 985, 682, 679, 629, 365, 360, 365, 471, 456, 323, 562, 612, 571, 612,
    583, 370, 613, 591, 242, 242, 549, 242, 876, 591, 600, 612, 612, 376, 528, 327, 591, 562, 818, 546, 562, 552, 426,
    333, 426, 662,
];
/// Width of any other character: those of Latin, Greek and Cyrillic are narrower, ideographs as wide as they are high.
const OTHER: u16 = 700;
const IDEOGRAPH: u16 = 1000;

/// How wide `text` is at a font size of `size`, in the same unit.
pub(crate) fn width(text: &str, size: f64) -> f64 {
    let thousandths = text.chars().map(|c| match c {
        ' '..='~' => WIDTHS[c as usize - ' ' as usize],
        '…' | '★' | '\u{1100}'.. => IDEOGRAPH,
        _ => OTHER,
    });
    thousandths.map(f64::from).sum::<f64>() * size / 1000.0
}

/// `text`, or as much of its start as fits into `room`, with an ellipsis.
pub(crate) fn shortened(text: &str, size: f64, room: f64) -> String {
    if width(text, size) <= room {
        return text.to_owned();
    }
    let mut short = String::new();
    let mut used = width("…", size);
    for c in text.chars() {
        used += width(c.encode_utf8(&mut [0; 4]), size);
        if used > room {
            break;
        }
        short.push(c);
    }
    short.truncate(short.trim_end().len());
    short + "…"
}

/// `text`, or its start and its end with an ellipsis between them: names often differ at their ends.
pub(crate) fn both_ends(text: &str, size: f64, room: f64) -> String {
    if width(text, size) <= room {
        return text.to_owned();
    }
    let letters: Vec<char> = text.chars().collect();
    let with = |kept: usize| -> String {
        let (head, tail) = (kept.div_ceil(2), kept / 2);
        letters[..head].iter().chain(&['…']).chain(&letters[letters.len() - tail..]).collect()
    };
    let most = (0..letters.len()).rev().map(with).find(|short| width(short, size) <= room);
    most.unwrap_or_else(|| "…".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_ends_with_an_ellipsis() {
        assert_eq!(shortened("12 µs", 10.0, 100.0), "12 µs");
        let short = shortened("ftl.over_provisioning=0.07 seed=1", 10.0, 80.0);
        assert!(short.ends_with('…') && width(&short, 10.0) <= 80.0 && short.len() > 8, "{short}");
        assert_eq!(shortened("ab", 10.0, 1.0), "…");
        let short = both_ends("a run with a long name, number 3", 10.0, 80.0);
        assert!(short.starts_with("a run") && short.ends_with("r 3") && width(&short, 10.0) <= 80.0, "{short}");
        assert_eq!((both_ends("ab", 10.0, 1.0).as_str(), both_ends("ab", 10.0, 90.0).as_str()), ("…", "ab"));
    }
}
