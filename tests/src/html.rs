//! Just enough reading of a page to see whether its plots show something.

/// The pieces of `page` from `<tag` to `</tag>`; elements of one name that contain each other are not expected.
pub fn elements<'a>(page: &'a str, tag: &str) -> Vec<&'a str> {
    let (open, close) = (format!("<{tag}"), format!("</{tag}>"));
    let mut found = Vec::new();
    let mut rest = page;
    while let Some(start) = rest.find(&open) {
        let after_name = rest[start + open.len()..].chars().next();
        let Some(length) = rest[start..].find(&close) else { break };
        if after_name.is_some_and(|c| c == '>' || c.is_whitespace()) {
            found.push(&rest[start..start + length + close.len()]);
            rest = &rest[start + length + close.len()..];
        } else {
            rest = &rest[start + open.len()..];
        }
    }
    found
}

/// The values of `attribute` in all `<tag …>` of `fragment`.
pub fn attributes<'a>(fragment: &'a str, tag: &str, attribute: &str) -> Vec<&'a str> {
    let (open, key) = (format!("<{tag} "), format!(" {attribute}=\""));
    let mut found = Vec::new();
    let mut rest = fragment;
    while let Some(start) = rest.find(&open) {
        let element = &rest[start..];
        let end = element.find('>').unwrap_or(element.len());
        if let Some(at) = element[..end].find(&key) {
            let value = &element[at + key.len()..end];
            found.push(&value[..value.find('"').unwrap_or(value.len())]);
        }
        rest = &element[end..];
    }
    found
}

/// How many marks of data an SVG holds: points of its paths and polylines, filled rectangles, circles. Lines and text
/// (axes, labels) do not count.
pub fn marks(svg: &str) -> usize {
    let numbers = |text: &str| text.split(|c: char| !c.is_ascii_digit() && c != '.').filter(|n| !n.is_empty()).count();
    let paths: usize = attributes(svg, "path", "d").iter().map(|d| numbers(d) / 2).sum();
    let polylines: usize = attributes(svg, "polyline", "points").iter().map(|points| numbers(points) / 2).sum();
    let positive = |value: &&str| value.parse::<f64>().is_ok_and(|size| size > 0.0);
    let rectangles = attributes(svg, "rect", "height").iter().filter(|height| positive(height)).count();
    let circles = attributes(svg, "circle", "r").iter().filter(|radius| positive(radius)).count();
    paths + polylines + rectangles + circles
}

/// Are all numbers in the drawing attributes of `svg` finite? A division by zero shows up as `NaN` or `inf`.
pub fn drawable(svg: &str) -> bool {
    let drawn =
        [("path", "d"), ("polyline", "points"), ("rect", "height"), ("rect", "width"), ("rect", "y"), ("text", "x")];
    drawn.iter().all(|(tag, attribute)| {
        attributes(svg, tag, attribute).iter().all(|value| !value.contains("NaN") && !value.contains("inf"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plots_are_told_from_empty_frames() {
        let page =
            r#"<svgx/><svg class="a"><path d=""/><line x1="0"/></svg><svg><path fill="none" d="M0 1L2.5 3"/></svg>"#;
        let svgs = elements(page, "svg");
        assert_eq!(svgs.len(), 2);
        assert_eq!(marks(svgs[0]), 0);
        assert_eq!(marks(svgs[1]), 2);
        assert_eq!(marks(r#"<svg><rect x="1" height="0"></rect><rect x="1" height="4"></rect></svg>"#), 1);
        assert!(drawable(svgs[1]));
        assert!(!drawable(r#"<svg><path d="M0 NaN"/></svg>"#));
    }
}
