//! JSON for files under version control: keys in order whatever features `serde_json` is built with, and what fits
//! into a line in one line.

use serde_json::Value;
use std::collections::BTreeMap;

/// Columns of a line.
const COLUMNS: usize = 120;

/// A document, with a line break at its end.
pub(super) fn text(value: &Value) -> String {
    let mut out = String::new();
    write(&mut out, value, 0, 0);
    out.push('\n');
    out
}

/// A value without a line break.
fn line(value: &Value) -> String {
    let joined = |parts: Vec<String>| parts.join(", ");
    match value {
        Value::Object(fields) => {
            let fields: BTreeMap<_, _> = fields.iter().collect();
            let fields = fields.into_iter().map(|(name, value)| format!("{}: {}", quoted(name), line(value)));
            format!("{{{}}}", joined(fields.collect()))
        }
        Value::Array(items) => format!("[{}]", joined(items.iter().map(line).collect())),
        _ => value.to_string(),
    }
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// Writes a value; `used`: columns of its line that other text takes.
fn write(out: &mut String, value: &Value, indent: usize, used: usize) {
    let short = line(value);
    let deeper = indent + 2;
    let mut list = |marks: [char; 2], parts: Vec<(String, &Value)>| {
        out.push(marks[0]);
        for (at, (head, value)) in parts.iter().enumerate() {
            *out += if at == 0 { "\n" } else { ",\n" };
            *out += &" ".repeat(deeper);
            *out += head;
            write(out, value, deeper, deeper + head.chars().count() + 1);
        }
        out.push('\n');
        *out += &" ".repeat(indent);
        out.push(marks[1]);
    };
    match value {
        _ if used + short.chars().count() <= COLUMNS => *out += &short,
        Value::Object(fields) => {
            let fields: BTreeMap<_, _> = fields.iter().collect();
            let fields = fields.into_iter().map(|(name, value)| (format!("{}: ", quoted(name)), value));
            list(['{', '}'], fields.collect());
        }
        Value::Array(items) => list(['[', ']'], items.iter().map(|item| (String::new(), item)).collect()),
        _ => *out += &short,
    }
}
