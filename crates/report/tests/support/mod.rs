//! The parts of JSON Schema that our schemas use: checking by them, and telling them as lists.

pub mod json;
#[path = "../../../../tests/src/markdown.rs"]
mod markdown;

use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

/// A file of the reference.
pub fn reference(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(file)
}

/// A schema of the reference.
pub fn schema(file: &str) -> Value {
    let text = std::fs::read_to_string(reference(file)).expect("the schema is committed");
    serde_json::from_str(&text).expect("the schema is JSON")
}

/// Violations in `text` of the schema in `file`.
pub fn wrong(file: &str, text: &str) -> Vec<String> {
    let root = schema(file);
    let mut wrong = Vec::new();
    check(&root, &root, &serde_json::from_str(text).unwrap(), "", &mut wrong);
    wrong
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
                if !types(rule).any(|name| is(value, name)) {
                    bad(format!("{value} is no {rule}"));
                }
            }
            "minimum" if value.as_f64() < rule.as_f64() => bad(format!("{value} is below {rule}")),
            "maximum" if value.as_f64() > rule.as_f64() => bad(format!("{value} is above {rule}")),
            "enum" if !rule.as_array().is_some_and(|all| all.contains(value)) => {
                bad(format!("{value} is not in {rule}"))
            }
            "maxItems" if value.as_array().map(|v| v.len() as u64) > rule.as_u64() => bad("too many items".into()),
            "minItems" if value.as_array().map(|v| v.len() as u64) < rule.as_u64() => bad("too few items".into()),
            "required" => {
                for name in rule.as_array().expect("required fields are an array").iter().filter_map(Value::as_str) {
                    if value.get(name).is_none() {
                        bad(format!("{name} is missing"));
                    }
                }
            }
            "minimum"
            | "maximum"
            | "enum"
            | "minItems"
            | "maxItems"
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

/// The names of a type, or of several.
fn types(rule: &Value) -> impl Iterator<Item = &str> {
    let several = rule.as_array().into_iter().flatten();
    several.chain(rule.is_string().then_some(rule)).map(|name| name.as_str().expect("a type is a string"))
}

fn is(value: &Value, name: &str) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        other => panic!("type {other}"),
    }
}

/// Rewrites the tables of a page when asked to, else compares: `UPDATE_DOCS=1 cargo test -p tidewater-report`.
pub fn page_lists(page: &str, file: &str, title: &str) {
    let start = format!("<!-- generated from {file}: UPDATE_DOCS=1 cargo test -p tidewater-report -->\n");
    let root = schema(file);
    let mut tables = String::new();
    table(&mut tables, &root, title);
    for (name, part) in sorted(&root["$defs"]) {
        table(&mut tables, part, &format!("`{name}`"));
    }
    let path = reference(page);
    let text = std::fs::read_to_string(&path).expect("the page is committed");
    let (head, _) = text.split_once(&start).expect("the page marks where its tables start");
    let want = format!("{head}{start}{}", markdown::wrap(&tables));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, want).unwrap();
    } else {
        assert!(text == want, "docs/reference/{page} is not what the schema says; set UPDATE_DOCS=1");
    }
}

/// The fields of an object by name: whether JSON keeps their order depends on what else is built.
fn sorted(object: &Value) -> BTreeMap<&String, &Value> {
    object.as_object().expect("the schema is an object").iter().collect()
}

fn table(out: &mut String, part: &Value, title: &str) {
    let _ = write!(out, "\n## {title}\n\n{}\n\n", part["description"].as_str().expect("every part is described"));
    let required: Vec<&str> = part["required"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    for (name, field) in sorted(&part["properties"]) {
        let optional = if required.contains(&name.as_str()) { "" } else { ", optional" };
        let meaning = field["description"].as_str().unwrap_or_else(|| panic!("{name} is not described"));
        let _ = writeln!(out, "- `{name}` ({}{optional}): {meaning}", kind(field));
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
    if field["type"].is_array() {
        return types(&field["type"]).collect::<Vec<_>>().join(" or ");
    }
    match (field["type"].as_str().unwrap_or(""), field["prefixItems"].as_array()) {
        ("array", Some(items)) if items.len() == 2 => "pair".to_owned(),
        ("array", Some(items)) => format!("{} values", items.len()),
        ("array", None) => format!("list of {}", kind(&field["items"])),
        ("number", _) if field["maximum"] == 1 => "share, 0 to 1".to_owned(),
        (other, _) => other.to_owned(),
    }
}

/// Every element that is opened is closed, in order.
pub fn balanced(markup: &str) {
    let body = markup.split_once("<body>").expect("the page has a body").1;
    let mut open: Vec<&str> = Vec::new();
    for tag in body.split('<').skip(1) {
        let inside = tag.split('>').next().unwrap();
        let name = inside.trim_start_matches('/').split([' ', '/']).next().unwrap();
        if inside.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "closed out of order near {tag:?}");
        } else if !inside.ends_with('/') && name != "br" {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "left open: {open:?}");
}

/// Plots on a page.
pub fn plots(html: &str) -> usize {
    html.matches("<svg class=\"plot\"").count()
}
