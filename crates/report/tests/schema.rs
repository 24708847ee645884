//! The record, its schema and its reference page say the same.

#[path = "../examples/sample/record.rs"]
#[allow(dead_code)]
mod sample;

use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use tidewater_report::Record;

fn reference(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(file)
}

fn schema() -> Value {
    let text = std::fs::read_to_string(reference("record.schema.json")).expect("the schema is committed");
    serde_json::from_str(&text).expect("the schema is JSON")
}

/// Checks `value` by the part of JSON Schema that the record's schema uses; any other keyword is an error, so that
/// nothing in the schema goes unchecked. Stricter than the schema in one thing: an object that lists its fields has no
/// others, so that no field of the record is left undocumented.
fn check(root: &Value, schema: &Value, value: &Value, at: &str, wrong: &mut Vec<String>) {
    let rules = schema.as_object().expect("a schema is an object");
    let mut bad = |what: String| wrong.push(format!("{at}: {what}"));
    for (keyword, rule) in rules {
        match keyword.as_str() {
            "$schema" | "title" | "description" | "$defs" => {}
            "$ref" => {
                let name = rule.as_str().and_then(|r| r.strip_prefix('#')).expect("references are local");
                let target = root.pointer(name).unwrap_or_else(|| panic!("{name} is not in the schema"));
                check(root, target, value, at, wrong);
                return;
            }
            "type" => {
                let right = match rule.as_str().expect("one type") {
                    "object" => value.is_object(),
                    "array" => value.is_array(),
                    "string" => value.is_string(),
                    "boolean" => value.is_boolean(),
                    "integer" => value.is_u64() || value.is_i64(),
                    "number" => value.is_number(),
                    other => panic!("type {other}"),
                };
                if !right {
                    bad(format!("{value} is no {rule}"));
                }
            }
            "minimum" if value.as_f64() < rule.as_f64() => bad(format!("{value} is below {rule}")),
            "maximum" if value.as_f64() > rule.as_f64() => bad(format!("{value} is above {rule}")),
            "enum" if !rule.as_array().is_some_and(|all| all.contains(value)) => {
                bad(format!("{value} is not in {rule}"))
            }
            "minItems" if value.as_array().map(|v| v.len() as u64) < rule.as_u64() => bad("too few items".into()),
            "required" => {
                for name in rule.as_array().expect("names").iter().filter_map(Value::as_str) {
                    if value.get(name).is_none() {
                        bad(format!("{name} is missing"));
                    }
                }
            }
            "minimum"
            | "maximum"
            | "enum"
            | "minItems"
            | "properties"
            | "additionalProperties"
            | "items"
            | "prefixItems" => {}
            other => panic!("{at}: this test does not know the keyword {other}"),
        }
    }
    if let Some(object) = value.as_object() {
        for (name, field) in object {
            let rule = schema.pointer(&format!("/properties/{name}")).or(schema.get("additionalProperties"));
            match rule {
                Some(rule) => check(root, rule, field, &format!("{at}/{name}"), wrong),
                None => wrong.push(format!("{at}: {name} is not in the schema")),
            }
        }
    }
    if let Some(array) = value.as_array() {
        for (i, item) in array.iter().enumerate() {
            let rule = schema.pointer(&format!("/prefixItems/{i}")).or(schema.get("items")).unwrap_or(&Value::Null);
            match rule {
                Value::Object(_) => check(root, rule, item, &format!("{at}/{i}"), wrong),
                _ => wrong.push(format!("{at}: item {i} is not in the schema")),
            }
        }
    }
}

fn wrong(text: &str) -> Vec<String> {
    let root = schema();
    let mut wrong = Vec::new();
    check(&root, &root, &serde_json::from_str(text).unwrap(), "", &mut wrong);
    wrong
}

#[test]
fn every_record_keeps_to_the_schema() {
    let mut partial = sample::small();
    partial.partial = true;
    partial.partial_reason = Some("interrupted by Ctrl-C".into());
    partial.command_line = Some("tidewater replay".into());
    for record in [sample::rich(), sample::small(), partial, Record::default()] {
        let wrong = wrong(&record.to_json());
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}

#[test]
fn the_check_finds_what_is_wrong() {
    let good = sample::small().to_json();
    for (from, to) in [
        ("\"requests\": 1", "\"requests\": -1"),
        ("\"requests\": 1", "\"requests\": \"1\""),
        ("\"requests\": 1", "\"requisites\": 1"),
        ("\"kind\": \"job\"", "\"kind\": \"jib\""),
        ("\"hit_ratio\": 0.0", "\"hit_ratio\": 2.0"),
        ("[81.5, 1.0]", "[81.5, 1.0, 3]"),
        ("\"schema\": 1", "\"schema\": 2"),
    ] {
        let bad = good.replacen(from, to, 1);
        assert_ne!(bad, good, "{from} is not in the sample");
        assert!(!wrong(&bad).is_empty(), "{to} was let through");
    }
}

/// Rewrites the tables when asked to, else compares: `TIDEWATER_UPDATE_DOCS=1 cargo test -p tidewater-report`.
#[test]
fn the_reference_page_lists_what_the_schema_says() {
    const START: &str =
        "<!-- generated from record.schema.json: TIDEWATER_UPDATE_DOCS=1 cargo test -p tidewater-report -->\n";
    let root = schema();
    let mut tables = String::new();
    table(&mut tables, &root, "The record");
    for (name, part) in sorted(&root["$defs"]) {
        table(&mut tables, part, &format!("`{name}`"));
    }
    let path = reference("record.md");
    let page = std::fs::read_to_string(&path).expect("the page is committed");
    let (head, _) = page.split_once(START).expect("the page marks where its tables start");
    let want = format!("{head}{START}{tables}");
    if std::env::var_os("TIDEWATER_UPDATE_DOCS").is_some() {
        std::fs::write(&path, want).unwrap();
    } else {
        assert!(page == want, "docs/reference/record.md is not what the schema says; set TIDEWATER_UPDATE_DOCS=1");
    }
}

/// The fields of an object by name: whether JSON keeps their order depends on what else is built.
fn sorted(object: &Value) -> BTreeMap<&String, &Value> {
    object.as_object().expect("an object").iter().collect()
}

fn table(out: &mut String, part: &Value, title: &str) {
    let _ = write!(
        out,
        "\n## {title}\n\n{}\n\n| field | type | meaning |\n|---|---|---|\n",
        part["description"].as_str().expect("every part is described")
    );
    let required: Vec<&str> = part["required"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    for (name, field) in sorted(&part["properties"]) {
        let optional = if required.contains(&name.as_str()) { "" } else { ", optional" };
        let meaning = field["description"].as_str().unwrap_or_else(|| panic!("{name} is not described"));
        let _ = writeln!(out, "| `{name}` | {}{optional} | {meaning} |", kind(field));
    }
}

fn kind(field: &Value) -> String {
    if let Some(name) = field["$ref"].as_str() {
        let name = name.rsplit('/').next().unwrap_or(name);
        return format!("[`{name}`](#{name})");
    }
    if let Some(values) = field["enum"].as_array() {
        return values
            .iter()
            .filter_map(Value::as_str)
            .map(|value| format!("`{value}`"))
            .collect::<Vec<_>>()
            .join(" or ");
    }
    if field["additionalProperties"].is_object() {
        return format!("map of {}", kind(&field["additionalProperties"]));
    }
    match (field["type"].as_str().unwrap_or(""), field["prefixItems"].as_array()) {
        ("array", Some(_)) => "pair".to_owned(),
        ("array", None) => format!("list of {}", kind(&field["items"])),
        ("number", _) if field["maximum"] == 1 => "share, 0 to 1".to_owned(),
        (other, _) => other.to_owned(),
    }
}
