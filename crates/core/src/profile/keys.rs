//! The keys of a profile and how to reach them. The table itself is in `table.rs`.

use super::error::{Problem, ProfileError, meant};
use super::table::{HEAD_KEYS, MEMORY_KEYS, SECTION_KEYS};
use super::value::{Kind, Value};
use super::{MemoryKind, MemoryProfile, Profile};
use std::collections::BTreeMap;

/// Where a key's value lives.
#[derive(Clone, Copy)]
pub(super) enum Access {
    /// In the profile.
    Profile(fn(&Profile) -> Value, fn(&mut Profile, Value)),
    /// In each memory.
    Memory(fn(&MemoryProfile) -> Value, fn(&mut MemoryProfile, Value)),
}

/// One key of a profile: its meaning, its range, its default's reason, and how to read and set it.
pub struct KeyInfo {
    /// `nand`; `memory` for the keys that every memory has; empty for the keys above all sections.
    pub section: &'static str,
    /// The name within its section.
    pub name: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// What it is.
    pub doc: &'static str,
    /// Why the default is what it is, and where it comes from.
    pub why: &'static str,
    pub(super) access: Access,
}

impl KeyInfo {
    /// The key as `--set` takes it: `nand.channels`; `memory.NAME.size` for a key that every memory has.
    pub fn key(&self) -> String {
        match self.section {
            "" => self.name.into(),
            "memory" => format!("memory.NAME.{}", self.name),
            section => format!("{section}.{}", self.name),
        }
    }

    /// The value in `profile`, written as `--set` takes it. Nothing for a key of memories: [`Profile::get`] knows their
    /// names.
    pub fn get(&self, profile: &Profile) -> Option<String> {
        match self.access {
            Access::Profile(get, _) => Some(self.kind.text(&get(profile))),
            Access::Memory(..) => None,
        }
    }

    fn refuse(&self, key: String, found: String, written: &str) -> ProfileError {
        let meant = match self.kind {
            Kind::Choice(choices) => meant(written, choices.iter().map(|(word, _)| *word)),
            Kind::Policy(names) => meant(written, names().into_iter()),
            _ => None,
        };
        ProfileError::new(key, Problem::Value { expected: self.kind.expected(), found, meant })
    }
}

/// The keys that a profile has once.
fn profile_keys() -> impl Iterator<Item = &'static KeyInfo> {
    HEAD_KEYS.iter().chain(SECTION_KEYS)
}

/// The sections that have keys of their own, in the order of the data's way through the drive.
pub(super) fn sections() -> impl Iterator<Item = &'static str> {
    let mut last = "";
    SECTION_KEYS
        .iter()
        .map(|info| info.section)
        .filter(move |section| std::mem::replace(&mut last, section) != *section)
}

/// The keys of a section; those of memories for `memory`.
pub(super) fn section_keys(section: &str) -> impl Iterator<Item = &'static KeyInfo> {
    Profile::keys().filter(move |info| info.section == section)
}

/// The key that was perhaps meant by one that there is not, as `--set` takes it: of several with that very name, all.
pub fn suggestion(key: &str) -> Option<String> {
    match find(key) {
        Ok(_) => None,
        Err(error) => match *error.problem {
            Problem::UnknownKey { meant } => meant,
            _ => None,
        },
    }
}

/// The key that was perhaps meant by a wrong one: in its section first, then anywhere.
pub(super) fn meant_key(section: &str, name: &str) -> Option<String> {
    if let Some(here) = meant(name, section_keys(section).map(|info| info.name)) {
        let named = if section.is_empty() { here } else { format!("{section}.{here}") };
        return Some(named);
    }
    let same: Vec<String> = Profile::keys().filter(|info| info.name == name).map(KeyInfo::key).collect();
    if !same.is_empty() {
        // The message has them in one pair of quotes.
        return Some(same.join("`, `"));
    }
    let elsewhere = meant(name, profile_keys().map(|info| info.name))?;
    profile_keys().find(|info| info.name == elsewhere).map(KeyInfo::key)
}

/// Either a place in a profile, or a new memory.
enum Target {
    Key(&'static KeyInfo),
    Memory(&'static KeyInfo, String),
}

fn find(key: &str) -> Result<Target, ProfileError> {
    let unknown = |section: &str, name: &str| {
        Err(ProfileError::new(key, Problem::UnknownKey { meant: meant_key(section, name) }))
    };
    let parts: Vec<&str> = key.split('.').collect();
    match parts.as_slice() {
        ["memory", memory, name] => match MEMORY_KEYS.iter().find(|info| info.name == *name) {
            Some(info) => Ok(Target::Memory(info, (*memory).to_owned())),
            None => {
                let meant = meant(name, MEMORY_KEYS.iter().map(|info| info.name));
                let meant = meant.map(|name| format!("memory.{memory}.{name}"));
                Err(ProfileError::new(key, Problem::UnknownKey { meant }))
            }
        },
        [section, name] => match profile_keys().find(|info| info.section == *section && info.name == *name) {
            Some(info) => Ok(Target::Key(info)),
            None if sections().any(|known| known == *section) => unknown(section, name),
            None => {
                let near = meant(section, sections()).unwrap_or_default();
                unknown(&near, name)
            }
        },
        [name] => match profile_keys().find(|info| info.section.is_empty() && info.name == *name) {
            Some(info) => Ok(Target::Key(info)),
            None => unknown("", name),
        },
        _ => unknown("", parts.last().copied().unwrap_or_default()),
    }
}

impl Profile {
    /// All keys, those above the sections first, then section by section; the keys of memories come last, once.
    pub fn keys() -> impl Iterator<Item = &'static KeyInfo> {
        profile_keys().chain(MEMORY_KEYS)
    }

    /// Sets one key, as `--set KEY=VALUE` does: `set("nand.channels", "4")`, `set("memory.dram.size", "64MiB")`.
    /// Setting the `kind` of a memory that is not there adds it, and another kind brings its own latencies and
    /// bandwidth; setting the `size` of one to 0 removes it.
    ///
    /// # Errors
    /// When the key is unknown or the value is not of its kind or range. Whether values fit together is for
    /// [`Profile::check`], when all are set.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), ProfileError> {
        let (info, memory) = match find(key)? {
            Target::Key(info) => (info, None),
            Target::Memory(info, memory) => (info, Some(memory)),
        };
        let parsed = info.kind.parse(value).map_err(|found| info.refuse(key.into(), found, value))?;
        self.put(info, memory.as_deref(), parsed).map_err(|problem| ProfileError::new(key, problem))?;
        if info.name == "size"
            && let Some(name) = memory
        {
            self.memories.retain(|memory| memory.name != name || memory.size > 0);
        }
        Ok(())
    }

    /// The value of one key, written as [`Profile::set`] takes it.
    ///
    /// # Errors
    /// When there is no such key.
    pub fn get(&self, key: &str) -> Result<String, ProfileError> {
        match find(key)? {
            Target::Key(info) => Ok(info.get(self).expect("a key outside memories has one value")),
            Target::Memory(info, name) => match (info.access, self.memory(&name)) {
                (Access::Memory(get, _), Some(memory)) => Ok(info.kind.text(&get(memory))),
                _ => Err(ProfileError::new(key, self.unknown_memory(&name))),
            },
        }
    }

    /// The memory of that name.
    pub fn memory(&self, name: &str) -> Option<&MemoryProfile> {
        self.memories.iter().find(|memory| memory.name == name)
    }

    /// Every setting, by key, written as [`Profile::set`] takes it: what a run record keeps.
    pub fn settings(&self) -> BTreeMap<String, String> {
        let mut settings: BTreeMap<String, String> =
            profile_keys().filter_map(|info| Some((info.key(), info.get(self)?))).collect();
        for memory in &self.memories {
            for info in MEMORY_KEYS {
                if let Access::Memory(get, _) = info.access {
                    settings.insert(format!("memory.{}.{}", memory.name, info.name), info.kind.text(&get(memory)));
                }
            }
        }
        settings
    }

    /// The profile that has these settings; what is not among them is as in `generic`, but memories are only those that
    /// are among them.
    ///
    /// # Errors
    /// As [`Profile::set`].
    pub fn from_settings(settings: &BTreeMap<String, String>) -> Result<Profile, ProfileError> {
        let mut profile = Profile { memories: Vec::new(), ..Profile::generic() };
        // A memory begins with its kind; the order of the rest does not matter.
        let (kinds, rest): (Vec<_>, Vec<_>) =
            settings.iter().partition(|(key, _)| key.starts_with("memory.") && key.ends_with(".kind"));
        for (key, value) in kinds.into_iter().chain(rest) {
            profile.set(key, value)?;
        }
        Ok(profile)
    }

    /// Puts a value of the right kind in its place.
    pub(super) fn put(&mut self, info: &KeyInfo, memory: Option<&str>, value: Value) -> Result<(), Problem> {
        match info.access {
            Access::Profile(_, set) => set(self, value),
            Access::Memory(_, set) => {
                let name = memory.unwrap_or_default();
                let at = match self.memories.iter().position(|memory| memory.name == name) {
                    Some(at) => at,
                    None if info.name == "kind" && super::value::is_name(name) => {
                        // Sorted, so that a profile does not depend on the order in which memories were named.
                        let at = self.memories.partition_point(|memory| memory.name.as_str() < name);
                        self.memories.insert(at, MemoryProfile::of_kind(name, MemoryKind::Dram));
                        at
                    }
                    None => return Err(self.unknown_memory(name)),
                };
                let memory = &mut self.memories[at];
                let before = memory.kind;
                set(memory, value);
                if memory.kind != before {
                    // Another kind brings its own latencies; only what the user gave, the size, stays.
                    *memory = MemoryProfile { size: memory.size, ..MemoryProfile::of_kind(name, memory.kind) };
                }
            }
        }
        Ok(())
    }

    pub(super) fn unknown_memory(&self, name: &str) -> Problem {
        Problem::UnknownMemory { meant: meant(name, self.memories.iter().map(|memory| memory.name.as_str())) }
    }

    /// The error for a value that a TOML document gives to a key.
    pub(super) fn refuse_toml(info: &KeyInfo, key: String, found: String, written: Option<&str>) -> ProfileError {
        info.refuse(key, found, written.unwrap_or_default())
    }
}
