//! Rust sources as tests of the house read them: code apart from prose (comments and literals).

/// The code of a Rust file: no comments, no text in string and character literals. Lines stay.
pub fn code_only(source: &str) -> String {
    parts(source).0
}

/// The prose of a Rust file: comments and the text in string literals. Lines stay.
pub fn prose(source: &str) -> String {
    parts(source).1
}

/// Does `word` stand in `code` as a token of its own?
pub fn has_word(code: &str, word: &str) -> bool {
    code.split(|c: char| !c.is_alphanumeric() && c != '_').any(|token| token == word)
}

/// Code and prose. Each has all line breaks of the source.
fn parts(source: &str) -> (String, String) {
    let chars: Vec<char> = source.chars().collect();
    let (mut code, mut prose) = (String::with_capacity(source.len()), String::with_capacity(source.len()));
    let mut at = 0;
    while at < chars.len() {
        let next = chars.get(at + 1).copied().unwrap_or('\0');
        let end = match chars[at] {
            '/' if next == '/' => line_end(&chars, at),
            '/' if next == '*' => block_end(&chars, at),
            'r' if next == '"' || next == '#' => match raw_end(&chars, at) {
                Some(end) if !code.ends_with(|c: char| c.is_alphanumeric() || c == '_') => end,
                _ => at,
            },
            '"' => quoted_end(&chars, at),
            '\'' if next == '\\' => {
                let rest = chars[(at + 3).min(chars.len())..].iter();
                (at + 4 + rest.take_while(|c| **c != '\'').count()).min(chars.len())
            }
            '\'' if chars.get(at + 2) == Some(&'\'') => at + 3,
            _ => at,
        };
        if end == at {
            code.push(chars[at]);
            if chars[at] == '\n' {
                prose.push('\n');
            }
            at += 1;
        } else {
            code.extend(chars[at..end].iter().filter(|c| **c == '\n'));
            prose.extend(&chars[at..end]);
            at = end;
        }
    }
    (code, prose)
}

fn line_end(chars: &[char], from: usize) -> usize {
    from + chars[from..].iter().take_while(|c| **c != '\n').count()
}

/// The end of a block comment, which may hold others.
fn block_end(chars: &[char], from: usize) -> usize {
    let (mut at, mut depth) = (from, 0);
    while at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('/', Some('*')) => {
                depth += 1;
                at += 2;
            }
            ('*', Some('/')) => {
                depth -= 1;
                at += 2;
            }
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at.min(chars.len())
}

/// The end of a raw string that begins at `from`; `None`: an identifier begins there.
fn raw_end(chars: &[char], from: usize) -> Option<usize> {
    let hashes = chars[from + 1..].iter().take_while(|c| **c == '#').count();
    if chars.get(from + 1 + hashes) != Some(&'"') {
        return None;
    }
    let closes =
        |at: usize| chars[at] == '"' && chars[at + 1..].iter().take(hashes).filter(|c| **c == '#').count() == hashes;
    let quote = (from + 2 + hashes..chars.len()).find(|at| closes(*at));
    Some(quote.map_or(chars.len(), |quote| quote + 1 + hashes))
}

fn quoted_end(chars: &[char], from: usize) -> usize {
    let mut at = from + 1;
    while at < chars.len() && chars[at] != '"' {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(chars.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_and_prose_are_kept_apart() {
        let source =
            "a // unsafe\n/* unsafe /* x */ */ b \"unsafe \\\" unsafe\" c r#\"unsafe\"# '\"' '\\'' fn f<'a>() d";
        let code = code_only(source);
        assert!(!has_word(&code, "unsafe"), "{code}");
        for word in ["a", "b", "c", "fn", "d"] {
            assert!(has_word(&code, word), "{word} in {code}");
        }
        assert_eq!(code.lines().count(), 2);
        assert!(has_word(&code_only("unsafe { x }"), "unsafe"));
        assert!(!has_word(&code_only("unsafe_code"), "unsafe"));

        let prose = prose(source);
        assert_eq!((prose.matches("unsafe").count(), prose.lines().count()), (5, 2), "{prose}");
        assert!(!has_word(&prose, "fn") && !has_word(&prose, "d"), "{prose}");
    }
}
