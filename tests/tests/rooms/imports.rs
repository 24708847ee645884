//! Which files of a crate import which: by `use`, and by paths in their code that begin with `crate`, `super`, `self`
//! or a module of their own. A name that a file has by `use` leads to the file that it is from.

use std::collections::{BTreeMap, BTreeSet};

/// A path, by its segments.
type Path = Vec<String>;

/// The product code of a file: no comments, and nothing behind its tests.
pub fn product(text: &str) -> String {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let code = code.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n");
    // Who may see an item is no import.
    code.replace("pub(in crate::", "pub(in ")
}

/// Whether a character may stand in a name.
fn in_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Imports and re-exports of a file.
#[derive(Default)]
struct Said {
    /// Paths that it uses.
    uses: BTreeSet<Path>,
    /// Names that it has of others, each with its path: all that use it see those that it passes on, and files below it
    /// see all.
    names: BTreeMap<String, Path>,
}

/// The leaves of a tree of `use`, each with the name that it gets.
fn leaves(tree: &str, before: &[String], found: &mut Vec<(Path, String)>) {
    let tree = tree.trim();
    let group = tree.find('{');
    let (head, name) =
        tree[..group.unwrap_or(tree.len())].rsplit_once("::").unwrap_or(("", &tree[..group.unwrap_or(tree.len())]));
    let mut path = before.to_vec();
    path.extend(head.split("::").map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned));
    let Some(group) = group else {
        let (name, alias) = name.split_once(" as ").unwrap_or((name, name));
        let (name, alias) = (name.trim(), alias.trim());
        if name == "self" {
            let last = path.last().cloned().unwrap_or_default();
            return found.push((path, if alias == "self" { last } else { alias.to_owned() }));
        }
        path.push(name.to_owned());
        return found.push((path, alias.to_owned()));
    };
    let (mut depth, mut from) = (0, group + 1);
    for (at, c) in tree.char_indices().skip_while(|(at, _)| *at <= group) {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                if !tree[from..at].trim().is_empty() {
                    leaves(&tree[from..at], &path, found);
                }
                from = at + 1;
            }
            _ => {}
        }
    }
}

/// The statements of `use` in a code, each with whether it passes its names on, and the code without them.
fn statements(code: &str) -> (Vec<(bool, String)>, String) {
    let (mut statements, mut rest) = (Vec::new(), String::new());
    let mut open: Option<(bool, String)> = None;
    for line in code.lines() {
        if open.is_none() {
            let line = line.trim();
            let behind_pub = line.strip_prefix("pub").map(|line| match line.strip_prefix('(') {
                Some(line) => line.split_once(')').map_or("", |(_, line)| line),
                None => line,
            });
            let tree = behind_pub.unwrap_or(line).trim_start().strip_prefix("use ");
            open = tree.map(|tree| (behind_pub.is_some(), tree.to_owned()));
        } else if let Some((_, tree)) = &mut open {
            tree.push_str(line);
        }
        match &open {
            Some((_, tree)) if tree.contains(';') => statements.extend(open.take()),
            Some(_) => {}
            None => rest.push_str(&format!("{line}\n")),
        }
    }
    (statements, rest)
}

impl Said {
    /// `own`: names of the file's own modules.
    fn of(code: &str, own: &BTreeSet<&str>) -> Said {
        let mut said = Said::default();
        let (statements, rest) = statements(code);
        for (passes_on, tree) in statements {
            let mut found = Vec::new();
            leaves(tree.split(';').next().unwrap_or_default(), &[], &mut found);
            for (path, name) in found {
                if !passes_on {
                    said.uses.insert(path.clone());
                }
                said.names.insert(name, path);
            }
        }
        // Paths of at least two names, each as long as it is.
        let mut before = ' ';
        let mut at = 0;
        while at < rest.len() {
            let c = rest[at..].chars().next().unwrap_or(' ');
            if !in_name(c) || in_name(before) || before == ':' || before == '$' {
                (before, at) = (c, at + c.len_utf8());
                continue;
            }
            let end = rest[at..].find(|c| !(in_name(c) || c == ':')).map_or(rest.len(), |len| at + len);
            let path: Path =
                rest[at..end].split("::").take_while(|part| part.chars().all(in_name)).map(str::to_owned).collect();
            let is_ours =
                |first: &String| matches!(first.as_str(), "crate" | "super" | "self") || own.contains(&**first);
            if path.len() > 1 && path.first().is_some_and(is_ours) {
                said.uses.insert(path);
            }
            (before, at) = (' ', end.max(at + 1));
        }
        said
    }
}

/// The imports between the files of a crate.
pub struct Imports {
    /// By module, the file and the modules that it uses.
    files: BTreeMap<Path, (String, BTreeSet<Path>)>,
}

impl Imports {
    /// Those of files with their product code, by their paths below `src`. The root of the crate only passes names on.
    pub fn of(files: &[(String, String)]) -> Imports {
        let module = |path: &str| -> Path {
            let path = path.trim_end_matches(".rs").trim_end_matches("/mod");
            path.split('/').filter(|part| *part != "lib" && *part != "main").map(str::to_owned).collect()
        };
        let modules: BTreeMap<Path, &(String, String)> = files.iter().map(|file| (module(&file.0), file)).collect();
        let own = |of: &Path| {
            let is_own = |other: &&Path| other.len() == of.len() + 1 && other.starts_with(of);
            modules.keys().filter(is_own).filter_map(|other| other.last()).map(String::as_str).collect::<BTreeSet<_>>()
        };
        let said: BTreeMap<&Path, Said> =
            modules.iter().map(|(module, (_, code))| (module, Said::of(code, &own(module)))).collect();
        let mut files = BTreeMap::new();
        for (module, (path, _)) in modules.iter().filter(|(module, _)| !module.is_empty()) {
            let used = said[module].uses.iter().filter_map(|path| find(&said, module, path, 0));
            let used = used.filter(|other| other != module && !other.is_empty()).collect();
            files.insert(module.clone(), (path.clone(), used));
        }
        Imports { files }
    }

    /// Each import: the file, and the file that it uses.
    pub fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        let file = |module: &Path| self.files[module].0.as_str();
        self.files.values().flat_map(move |(path, used)| used.iter().map(move |other| (path.as_str(), file(other))))
    }

    /// The modules to which a module leads.
    fn reached(&self, from: &Path) -> BTreeSet<&Path> {
        let (mut found, mut open) = (BTreeSet::new(), vec![&self.files[from].1]);
        while let Some(used) = open.pop() {
            open.extend(used.iter().filter(|other| found.insert(*other)).map(|other| &self.files[other].1));
        }
        found
    }

    /// The circles: files each of which leads to each other of them, the largest first.
    pub fn circles(&self) -> Vec<Vec<&str>> {
        let reached: BTreeMap<&Path, _> = self.files.keys().map(|from| (from, self.reached(from))).collect();
        let mut circles: BTreeSet<Vec<&str>> = BTreeSet::new();
        for (from, to) in reached.iter().filter(|(from, to)| to.contains(*from)) {
            let circle = to.iter().filter(|other| reached[**other].contains(from));
            circles.insert(circle.map(|module| self.files[*module].0.as_str()).collect());
        }
        let mut circles: Vec<_> = circles.into_iter().collect();
        circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
        circles
    }
}

/// The module that has what a path in `module` names. `depth`: how often it was passed on.
fn find(said: &BTreeMap<&Path, Said>, module: &Path, path: &Path, depth: usize) -> Option<Path> {
    let mut full = module.clone();
    let mut rest = &path[..];
    match rest.first()?.as_str() {
        "crate" => full.clear(),
        "super" => {}
        "self" => {}
        own if said.contains_key(&[&module[..], &[own.to_owned()]].concat()) => {}
        _ => return None,
    }
    while let Some((first, others)) = rest.split_first() {
        match first.as_str() {
            "super" => _ = full.pop(),
            "crate" | "self" => {}
            _ => break,
        }
        rest = others;
    }
    full.extend_from_slice(rest);
    let known = (0..=full.len()).rev().find(|&len| said.contains_key(&full[..len].to_vec()))?;
    let has = full[..known].to_vec();
    let passed_on = full.get(known).and_then(|name| said[&has].names.get(name)).filter(|_| depth < 8);
    match passed_on {
        Some(on) => find(said, &has, &[&on[..], &full[known + 1..]].concat(), depth + 1).or(Some(has)),
        None => Some(has),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports(files: &[(&str, &str)]) -> Imports {
        let files: Vec<_> = files.iter().map(|(path, code)| ((*path).to_owned(), product(code))).collect();
        Imports::of(&files)
    }

    #[test]
    fn imports_are_found_however_they_are_written() {
        for code in [
            "use crate::b::c::Thing;",
            "use crate::{b::{self, c::{Other, Thing}}};",
            "use super::b::c::Thing as Other;",
            "fn f() -> crate::b::c::Thing {}",
            "use super::b::Passed;",
            "use crate::Passed;",
            "use super::Shared;",
        ] {
            let all = [
                ("lib.rs", "pub use b::Passed;\nuse b::c::Shared;"),
                ("a.rs", code),
                ("b/mod.rs", "pub mod c;\npub use self::c::{Thing as Passed};"),
                ("b/c.rs", "pub struct Thing;"),
            ];
            let found = imports(&all);
            assert!(found.all().any(|import| import == ("a.rs", "b/c.rs")), "{code}");
            assert!(found.circles().is_empty(), "{code}");
        }
        let nothing = imports(&[("a.rs", "// crate::b\nuse std::b;\nmod b { }"), ("b.rs", "")]);
        assert_eq!(nothing.all().next(), None);
    }

    #[test]
    fn circles_are_found_whole() {
        let own = [
            ("a/mod.rs", "mod b;\nmod c;\nuse b::Of;"),
            ("a/b.rs", "use super::c::Thing;"),
            ("a/c.rs", "use super::Own;"),
        ];
        assert_eq!(imports(&own).circles(), [["a/mod.rs", "a/b.rs", "a/c.rs"]]);
        let open = [own[0], own[1], ("a/c.rs", "")];
        assert!(imports(&open).circles().is_empty());
    }
}
