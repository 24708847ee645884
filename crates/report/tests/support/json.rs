//! The schema of a group of rows, as the text of a JSON Schema.

use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use tidewater_base::numbers::{Group, Row, Shape};

/// JSON whose objects keep their order, whatever else is built.
enum Json {
    Value(Value),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Json::Value(value) => value.serialize(serializer),
            Json::List(items) => serializer.collect_seq(items),
            Json::Object(fields) => serializer.collect_map(fields.iter().map(|(name, value)| (name, value))),
        }
    }
}

fn object<const N: usize>(fields: [(&str, Json); N]) -> Json {
    Json::Object(fields.map(|(name, value)| (name.to_owned(), value)).into())
}

fn value(value: impl Into<Value>) -> Json {
    Json::Value(value.into())
}

/// `ChannelUse` as JSON names it: `channel_use`.
fn snake(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.extend(c.to_lowercase());
    }
    out
}

fn sentence(lines: &[&str]) -> Json {
    let lines: Vec<&str> = lines.iter().map(|line| line.trim()).filter(|line| !line.is_empty()).collect();
    assert!(!lines.is_empty(), "every row has its sentence");
    value(lines.join(" "))
}

/// The name of a row; `use`, a word of Rust's, has a prefix there.
fn name(row: &Row) -> &'static str {
    row.name.strip_prefix("r#").unwrap_or(row.name)
}

/// A number; shares of a whole are known by their name.
fn number(name: &str) -> Json {
    let plain = [("type", value("number")), ("minimum", value(0))];
    match name.ends_with("_share") || name.ends_with("hit_ratio") {
        true => share(),
        false => object(plain),
    }
}

fn share() -> Json {
    object([("type", value("number")), ("minimum", value(0)), ("maximum", value(1))])
}

fn count() -> Json {
    object([("type", value("integer")), ("minimum", value(0))])
}

fn pair(first: Json, second: Json) -> Json {
    object([
        ("type", value("array")),
        ("prefixItems", Json::List(vec![first, second])),
        ("items", value(false)),
        ("minItems", value(2)),
    ])
}

fn shape(name: &str, of: &Shape) -> Json {
    match of {
        Shape::Count => count(),
        Shape::Number => number(name),
        Shape::Flag => object([("type", value("boolean"))]),
        Shape::Text => object([("type", value("string"))]),
        Shape::Word(words) => object([("enum", value(json!(words)))]),
        Shape::Counts => pair(count(), count()),
        Shape::Point => pair(number("x"), share()),
        Shape::List(items) => object([("type", value("array")), ("items", shape(name, items))]),
        Shape::Map(values) => object([("type", value("object")), ("additionalProperties", shape(name, values))]),
        Shape::Group(group) => object([("$ref", value(format!("#/$defs/{}", snake(group.name))))]),
    }
}

fn field(row: &Row) -> (String, Json) {
    let Json::Object(mut fields) = shape(name(row), &row.shape) else { unreachable!("a shape is an object") };
    if row.name == "schema" {
        let version = tidewater_report::record::SCHEMA;
        fields.retain(|(name, _)| name == "type");
        fields.extend(["minimum", "maximum"].map(|bound| (bound.to_owned(), value(version))));
    }
    fields.push(("description".to_owned(), sentence(row.doc)));
    (name(row).to_owned(), Json::Object(fields))
}

fn group(of: &Group) -> [(&'static str, Json); 4] {
    let required = of.rows.iter().filter(|row| !row.is_optional);
    [
        ("type", value("object")),
        ("description", sentence(of.doc)),
        ("properties", Json::Object(of.rows.iter().map(field).collect())),
        ("required", Json::List(required.map(|row| value(name(row))).collect())),
    ]
}

/// The groups that a group has, each after those that it has itself.
fn inner(of: &Group, found: &mut Vec<(String, Json)>) {
    for row in of.rows {
        let mut form = &row.shape;
        while let Shape::List(within) | Shape::Map(within) = form {
            form = within;
        }
        if let Shape::Group(part) = form
            && found.iter().all(|(name, _)| *name != snake(part.name))
        {
            inner(part, found);
            found.push((snake(part.name), object(group(part))));
        }
    }
}

/// The schema of a document of these rows.
pub fn schema(title: &str, of: &Group) -> String {
    let mut defs = Vec::new();
    inner(of, &mut defs);
    let head = [("$schema", value("https://json-schema.org/draft/2020-12/schema")), ("title", value(title))];
    let fields = head.into_iter().chain(group(of)).chain([("$defs", Json::Object(defs))]);
    let schema = Json::Object(fields.map(|(name, value)| (name.to_owned(), value)).collect());
    format!("{}\n", serde_json::to_string_pretty(&schema).expect("it is written to memory"))
}
