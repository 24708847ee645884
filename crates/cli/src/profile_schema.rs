//! The JSON schema of a profile, made from the table of keys: an editor checks and completes TOML files by it.

use serde_json::{Map, Value, json};
use tidewater_core::profile::{self, KeyInfo, Kind, Profile};

/// The schema (2020-12) of a profile.
pub fn schema() -> Value {
    let generic = profile::builtin("generic").expect("a built-in profile");
    let mut head = Map::new();
    let mut sections: Vec<(&str, Map<String, Value>)> = Vec::new();
    for info in Profile::keys() {
        let entry = (info.name.to_owned(), key(info, info.get(&generic)));
        match sections.iter_mut().find(|(section, _)| *section == info.section) {
            _ if info.section.is_empty() => drop(head.insert(entry.0, entry.1)),
            Some((_, keys)) => drop(keys.insert(entry.0, entry.1)),
            None => sections.push((info.section, Map::from_iter([entry]))),
        }
    }
    // Given by the file alone: the profile that it changes.
    let bases = profile::names().collect::<Vec<_>>();
    head.insert("base".into(), json!({"enum": bases, "description": "The built-in profile that this one changes."}));
    for (section, keys) in sections {
        let table = json!({"type": "object", "properties": keys, "additionalProperties": false});
        let table = match section {
            "memory" => json!({"type": "object", "additionalProperties": table}),
            _ => table,
        };
        head.insert(section.into(), table);
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Tidewater profile",
        "description": "A drive: its memories, flash, firmware policies and host interface.",
        "type": "object",
        "properties": head,
        "additionalProperties": false,
    })
}

/// One key, with its default in the profile `generic`.
fn key(info: &KeyInfo, default: Option<String>) -> Value {
    let mut entry = of_kind(&info.kind);
    let text = format!("{} Expected: {}. Default: {}", info.doc, info.kind.expected(), info.why);
    entry.insert("description".into(), text.into());
    if let Some(default) = default {
        let typed = match info.kind {
            Kind::Switch => (default == "true").into(),
            Kind::Integer { .. } => default.parse::<u64>().map_or(Value::Null, Value::from),
            _ => default.into(),
        };
        entry.insert("default".into(), typed);
    }
    Value::Object(entry)
}

fn of_kind(kind: &Kind) -> Map<String, Value> {
    let schema = match kind {
        Kind::Switch => json!({"type": "boolean"}),
        Kind::Integer { min, max } => json!({"type": "integer", "minimum": min, "maximum": max}),
        Kind::Bytes { .. } => json!({"type": ["string", "integer"]}),
        Kind::Rate { .. } | Kind::Time { .. } | Kind::Text => json!({"type": ["string", "integer"]}),
        Kind::Share { .. } | Kind::Number { .. } => json!({"type": ["string", "number"]}),
        Kind::Choice(words) => json!({"enum": words.iter().map(|(word, _)| *word).collect::<Vec<_>>()}),
        Kind::Policy(names) => json!({"enum": names()}),
        Kind::Name => json!({"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"}),
        Kind::List { of, min, max } => {
            let one = Value::Object(of_kind(of));
            let several = json!({"type": "array", "items": one, "minItems": min, "maxItems": max});
            json!({"anyOf": [{"type": "string"}, one, several]})
        }
    };
    match schema {
        Value::Object(map) => map,
        _ => unreachable!("each is an object"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_every_key_and_takes_what_the_built_in_profiles_say() {
        let schema = schema();
        let mut keys = 0;
        for info in Profile::keys() {
            let place = match info.section {
                "" => format!("/properties/{}", info.name),
                "memory" => format!("/properties/memory/additionalProperties/properties/{}", info.name),
                section => format!("/properties/{section}/properties/{}", info.name),
            };
            let entry = schema.pointer(&place).unwrap_or_else(|| panic!("no {place}"));
            assert!(entry["description"].as_str().is_some_and(|text| text.starts_with(info.doc)), "{place}");
            keys += 1;
        }
        assert!(keys > 130, "{keys}");
        let policies = schema.pointer("/properties/buffer/properties/write_policy/enum").unwrap();
        assert!(policies.as_array().unwrap().contains(&"cbm".into()), "{policies}");
        let bases = schema.pointer("/properties/base/enum").unwrap().as_array().unwrap();
        assert!(bases.contains(&"generic".into()) && !bases.contains(&"mine".into()), "{bases:?}");
        // A word that a profile may not hold is in no list.
        for name in profile::names() {
            let text = profile::builtin_text(name).unwrap();
            let mut section = String::new();
            for line in text.lines() {
                if let Some(head) = line.strip_prefix('[') {
                    section = head.trim_end_matches(']').split('.').next().unwrap_or_default().to_owned();
                }
                let Some((key, value)) = line.split_once(" = ").filter(|(key, _)| !key.starts_with('#')) else {
                    continue;
                };
                let place = match section.as_str() {
                    "" => format!("/properties/{key}"),
                    "memory" => format!("/properties/memory/additionalProperties/properties/{key}"),
                    section => format!("/properties/{section}/properties/{key}"),
                };
                let entry = schema.pointer(&place).unwrap_or_else(|| panic!("{name}: no {place}"));
                if let Some(words) = entry["enum"].as_array() {
                    assert!(words.contains(&value.trim_matches('"').into()), "{name}: {key} = {value}: {words:?}");
                }
            }
        }
    }

    /// docs/reference/profile.schema.json is what `profile schema` prints.
    #[test]
    fn the_stored_schema_is_the_one_of_the_keys() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/profile.schema.json");
        let text = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, &text).unwrap();
        }
        let stored = std::fs::read_to_string(path).unwrap_or_default();
        assert!(stored == text, "docs/reference/profile.schema.json: UPDATE_DOCS=1 cargo test -p tidewater schema");
    }
}
