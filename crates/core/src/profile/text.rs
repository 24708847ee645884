//! Profiles as TOML: read, written with all that is known of each key, and the reference page.

use super::error::{Problem, ProfileError, meant};
use super::keys::{self, KeyInfo};
use super::value::{is_name, quote};
use super::{Profile, builtin, names};
use std::fmt::Write as _;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A key as TOML has it, with where it stands.
type Entry<'a, 'i> = (&'a Spanned<std::borrow::Cow<'i, str>>, &'a Spanned<DeValue<'i>>);

/// The entries of a table in the order of the file, so that the first mistake is the one reported.
fn in_order<'a, 'i>(table: &'a DeTable<'i>) -> Vec<Entry<'a, 'i>> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

/// A mistake and the bytes of the file that it is about.
struct Mistake(ProfileError, Range<usize>);

fn mistake(key: impl Into<String>, problem: Problem, span: Range<usize>) -> Mistake {
    Mistake(ProfileError::new(key, problem), span)
}

/// Keys that the last release, 0.1.0, does not know.
const NEWER: [(&str, &str); 6] = [
    ("buffer", "read_ahead"),
    ("flash", "share_senses"),
    ("memory", "efficiency"),
    ("nand", "rber_disturb"),
    ("nand", "rber_retention"),
    ("window", "flush_buffered"),
];

impl Profile {
    /// Reads a profile file. What it does not say is taken from its `base`, a built-in profile, or from `generic` when
    /// it names none. `file` is for messages.
    ///
    /// # Errors
    /// With file, line and column: text that is no TOML, unknown sections, keys and bases, values of another kind or
    /// out of range. Whether values fit together is for [`Profile::check`].
    pub fn parse(text: &str, file: &str) -> Result<Profile, ProfileError> {
        let at = |offset: usize| {
            let before = text.get(..offset.min(text.len())).unwrap_or(text);
            let line = before.matches('\n').count() + 1;
            let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
            Some((line, column))
        };
        let document = DeTable::parse(text).map_err(|error| ProfileError {
            file: Some(file.to_owned()),
            at: at(error.span().map_or(0, |span| span.start)),
            key: None,
            problem: Box::new(Problem::Syntax(error.message().trim().replace('\n', ", "))),
        })?;
        Profile::from_document(document.get_ref()).map_err(|Mistake(error, span)| ProfileError {
            file: Some(file.to_owned()),
            at: at(span.start),
            ..error
        })
    }

    fn from_document(document: &DeTable<'_>) -> Result<Profile, Mistake> {
        let mut profile = base_of(document)?;
        for (key, value) in in_order(document) {
            let name = key.get_ref().as_ref();
            match value.get_ref() {
                _ if name == "base" => {}
                DeValue::Table(table) if name == "memory" => profile.read_memories(table)?,
                DeValue::Table(table) if keys::sections().any(|section| section == name) => {
                    for (key, value) in in_order(table) {
                        profile.read_key(name, None, key, value)?;
                    }
                }
                _ if keys::section_keys("").any(|info| info.name == name) => {
                    profile.read_key("", None, key, value)?;
                }
                DeValue::Table(_) => {
                    let meant = meant(name, keys::sections().chain(["memory"]));
                    return Err(mistake(quote(name), Problem::UnknownSection { meant }, key.span()));
                }
                _ if name == "memory" || keys::sections().any(|section| section == name) => {
                    let found = value.get_ref().type_str().to_owned();
                    let expected = format!("a table, `[{name}]`");
                    return Err(mistake(name, Problem::Value { expected, found, meant: None }, value.span()));
                }
                _ => {
                    let meant = keys::meant_key("", name);
                    return Err(mistake(quote(name), Problem::UnknownKey { meant }, key.span()));
                }
            }
        }
        profile.memories.retain(|memory| memory.size > 0);
        Ok(profile)
    }

    fn read_memories(&mut self, memories: &DeTable<'_>) -> Result<(), Mistake> {
        for (name, value) in in_order(memories) {
            let memory = name.get_ref().as_ref();
            let place = || format!("memory.{}", if is_name(memory) { memory.into() } else { quote(memory) });
            let DeValue::Table(table) = value.get_ref() else {
                let found = value.get_ref().type_str().to_owned();
                let expected = format!("a table, `[memory.{memory}]`");
                return Err(mistake(place(), Problem::Value { expected, found, meant: None }, value.span()));
            };
            if !is_name(memory) {
                let problem = Problem::Value {
                    expected: "a name of letters, digits, `-` and `_`".into(),
                    found: quote(memory),
                    meant: None,
                };
                return Err(mistake("memory", problem, name.span()));
            }
            if self.memory(memory).is_none() && !table.contains_key("kind") {
                return Err(mistake(place(), self.unknown_memory(memory), name.span()));
            }
            let new = self.memory(memory).is_none();
            // The kind first: it brings the defaults that the other keys then change.
            let (kinds, rest): (Vec<_>, Vec<_>) =
                in_order(table).into_iter().partition(|(key, _)| key.get_ref().as_ref() == "kind");
            for (key, value) in kinds.into_iter().chain(rest) {
                self.read_key("memory", Some(memory), key, value)?;
            }
            if new && !table.contains_key("size") {
                return Err(mistake(place(), Problem::Missing("a new memory needs a `size`".into()), name.span()));
            }
        }
        Ok(())
    }

    fn read_key(
        &mut self,
        section: &str,
        memory: Option<&str>,
        key: &Spanned<std::borrow::Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<(), Mistake> {
        let name = key.get_ref().as_ref();
        let within = match memory {
            Some(memory) => format!("memory.{memory}"),
            None => section.to_owned(),
        };
        let full = |name: &str| if within.is_empty() { name.to_owned() } else { format!("{within}.{name}") };
        let Some(info) = keys::section_keys(section).find(|info| info.name == name) else {
            let written = if is_name(name) { name.to_owned() } else { quote(name) };
            let meant = meant(name, keys::section_keys(section).map(|info| info.name))
                .or_else(|| keys::meant_key(section, name));
            return Err(mistake(full(&written), Problem::UnknownKey { meant }, key.span()));
        };
        let parsed = info.kind.take(value.get_ref()).map_err(|found| {
            Mistake(Profile::refuse_toml(info, full(name), found, value.get_ref().as_str()), value.span())
        })?;
        self.put(info, memory, parsed).map_err(|problem| mistake(full(name), problem, key.span()))
    }

    /// Writes the profile as TOML that [`Profile::parse`] reads back to the same profile, each key with what it is,
    /// what it may be, and why its default is what it is.
    pub fn show(&self) -> String {
        self.written(&[])
    }

    /// As [`Profile::show`], for an image: keys that the last release does not know are left out where they have no
    /// effect, so that a device can go back to it.
    pub fn stored(&self) -> String {
        self.written(&NEWER)
    }

    /// `less`: keys that are left out where they are as in the generic drive.
    fn written(&self, less: &[(&str, &str)]) -> String {
        let generic = Profile::generic();
        let mut out = String::new();
        let _ = writeln!(out, "# {}: {}", self.name, self.description);
        let _ = writeln!(out, "base = \"generic\"");
        let mut last = "";
        for info in Profile::keys() {
            if info.section == "memory" {
                break;
            }
            let (now, default) = (self.value(info, None), generic.value(info, None));
            if now == default && less.contains(&(info.section, info.name)) {
                continue;
            }
            if info.section != last {
                let _ = write!(out, "\n[{}]", info.section);
                last = info.section;
            }
            out.push('\n');
            comment(&mut out, &format!("{} Expects {}.", info.doc, info.kind.expected()));
            match (info.section, now == default) {
                ("", _) => {}
                (_, true) => comment(&mut out, &format!("Why: {}", info.why)),
                (_, false) => comment(&mut out, &format!("Default {default}: {}", info.why)),
            }
            let _ = writeln!(out, "{} = {now}", info.name);
        }
        for memory in &self.memories {
            let _ = writeln!(out, "\n[memory.{}]", memory.name);
            for info in keys::section_keys("memory") {
                let now = self.value(info, Some(&memory.name));
                let default = generic.memories.first().map(|other| generic.value(info, Some(&other.name)));
                if Some(&now) == default.as_ref() && less.contains(&(info.section, info.name)) {
                    continue;
                }
                comment(&mut out, info.doc);
                let _ = writeln!(out, "{} = {now}", info.name);
            }
        }
        for absent in generic.memories.iter().filter(|memory| self.memory(&memory.name).is_none()) {
            let _ = writeln!(out, "\n[memory.{}]\n# This drive has none.\nsize = 0", absent.name);
        }
        out
    }

    /// A value as TOML.
    fn value(&self, info: &KeyInfo, memory: Option<&str>) -> String {
        match (info.access, memory.and_then(|name| self.memory(name))) {
            (keys::Access::Profile(get, _), _) => info.kind.toml(&get(self)),
            (keys::Access::Memory(get, _), Some(memory)) => info.kind.toml(&get(memory)),
            (keys::Access::Memory(..), None) => String::new(),
        }
    }
}

/// The built-in profile that the file with this text builds on. Nothing, where that is unknown.
pub fn base(text: &str) -> Option<Profile> {
    base_of(DeTable::parse(text).ok()?.get_ref()).ok()
}

/// The profile that a document builds on.
fn base_of(document: &DeTable<'_>) -> Result<Profile, Mistake> {
    let Some((key, value)) = document.iter().find(|(key, _)| key.get_ref().as_ref() == "base") else {
        return Ok(Profile::generic());
    };
    let found = value.get_ref().as_str().map_or_else(|| value.get_ref().type_str().to_owned(), str::to_owned);
    match (value.get_ref().as_str(), found.as_str()) {
        (Some(_), "generic") => Ok(Profile::generic()),
        (Some(name), _) if names().any(|known| known == name) => Ok(builtin(name).expect("a listed name is built in")),
        _ => {
            let meant = meant(&found, names());
            let span = if value.span().is_empty() { key.span() } else { value.span() };
            Err(mistake("base", Problem::UnknownBase { name: found, meant }, span))
        }
    }
}

/// A comment, broken at 100 characters.
fn comment(out: &mut String, text: &str) {
    let mut line = String::from("#");
    for word in text.split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > 100 {
            let _ = writeln!(out, "{line}");
            line = String::from("#");
        }
        line.push(' ');
        line.push_str(word);
    }
    let _ = writeln!(out, "{line}");
}

/// The reference page of all keys, as Markdown: `docs/reference/profile.md`.
pub fn reference() -> String {
    let generic = Profile::generic();
    let mut out = String::from(REFERENCE_HEAD);
    let _ = writeln!(out, "## Built-in profiles\n");
    for profile in names().filter_map(builtin) {
        let _ = writeln!(out, "- `{}`: {}", profile.name, profile.outline());
    }
    let mut last = "";
    for info in Profile::keys() {
        if info.section != last || info.name == "name" {
            let title = match info.section {
                "" => "Above all sections".to_owned(),
                "memory" => "`[memory.NAME]`".to_owned(),
                section => format!("`[{section}]`"),
            };
            let _ = writeln!(out, "\n## {title}");
            last = info.section;
        }
        let _ = writeln!(out, "\n### `{}`\n\n{}\n", info.key(), info.doc);
        let _ = writeln!(out, "- Expects {}.", info.kind.expected());
        if let super::Kind::Choice(choices) = info.kind {
            for (word, meaning) in choices {
                let _ = writeln!(out, "  - `{word}`: {meaning}");
            }
        }
        match info.get(&generic) {
            Some(default) if !info.section.is_empty() => {
                let _ = writeln!(out, "- Default `{default}`. {}", info.why);
            }
            _ => {
                let _ = writeln!(out, "- {}", info.why);
            }
        }
    }
    let _ = writeln!(
        out,
        "\n### Defaults by kind\n\n| kind | read | write | bandwidth | survives |\n|---|---|---|---|---|"
    );
    for (word, _) in super::MemoryKind::WORDS {
        let mut one = Profile { memories: Vec::new(), ..Profile::generic() };
        let get = |profile: &Profile, name: &str| profile.get(&format!("memory.x.{name}")).unwrap_or_default();
        if one.set("memory.x.kind", word).is_ok() {
            let _ = writeln!(
                out,
                "| `{word}` | {} | {} | {} | {} |",
                get(&one, "read_latency"),
                get(&one, "write_latency"),
                get(&one, "bandwidth"),
                get(&one, "survives")
            );
        }
    }
    out
}

const REFERENCE_HEAD: &str = "\
# Profile reference

A profile is a TOML file that describes a drive. `tidewater profile list` names the built-in ones, `tidewater profile
show NAME` prints one with these explanations, and `--set SECTION.KEY=VALUE` changes one value for a run. This page is
generated from the table in `crates/core/src/profile/table.rs`; `UPDATE_DOCS=1 cargo test -p tidewater-core profile`
writes it anew.

- `base = \"NAME\"` above all sections names the built-in profile that a file builds on; without it, `generic`.
- Sizes are binary, as fio takes them: `4k`, `4KB` and `4KiB` are 4,096 bytes. Without a unit they are bytes.
- Rates are decimal: `1.2GB/s` is 1,200,000,000 bytes per second.
- Times need a unit: `ps`, `ns`, `us`, `ms`, `s`. Shares are `7%` or `0.07`.
- Lists are TOML lists in a file, and `45us/60us/75us` (or with commas) after `--set`. Where a list has a fixed length,
  one value stands for all.
- A memory with `size = 0` is not there.
- \"An assumption\" marks a default that no public source gives.

";
