//! Names and values, printed as nvme-cli prints them, or as JSON with the same names.

use serde_json::{Map, Value};
use std::fmt::{Display, Write as _};

/// Tables of so few rows in a list stand on one line each.
const INLINE_ROWS_MAX: usize = 4;

/// Names and values, in an order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table(Vec<Row>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Row {
    Value { name: String, text: String, json: Value },
    List { name: &'static str, tables: Vec<Table> },
}

/// A number of any size as JSON: numbers past 64 bits, which few readers take, as text.
fn json(value: u128) -> Value {
    u64::try_from(value).map_or_else(|_| Value::from(value.to_string()), Value::from)
}

impl Table {
    /// A value and how it is printed.
    pub fn with(mut self, name: impl Into<String>, json: impl Into<Value>, text: impl Display) -> Table {
        self.0.push(Row::Value { name: name.into(), text: text.to_string(), json: json.into() });
        self
    }

    /// A number.
    pub fn number(self, name: impl Into<String>, value: impl Into<u128>) -> Table {
        self.unit(name, value, "")
    }

    /// A number with its unit.
    pub fn unit(self, name: impl Into<String>, value: impl Into<u128>, unit: &str) -> Table {
        let value = value.into();
        self.with(name, json(value), format_args!("{value}{unit}"))
    }

    /// Bits, or what is best known in hexadecimal.
    pub fn hex(self, name: impl Into<String>, value: impl Into<u128>) -> Table {
        let value = value.into();
        self.with(name, json(value), format_args!("{value:#x}"))
    }

    /// Text.
    pub fn words(self, name: impl Into<String>, text: impl Display) -> Table {
        let text = text.to_string();
        self.with(name, text.as_str(), &text)
    }

    /// Bytes as an identifier.
    pub fn bytes(self, name: impl Into<String>, bytes: &[u8]) -> Table {
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        self.words(name, text)
    }

    /// Several of the same kind, counted from 0.
    pub fn list(mut self, name: &'static str, tables: Vec<Table>) -> Table {
        self.0.push(Row::List { name, tables });
        self
    }

    /// Name and value in each line, the colons one below the other.
    pub fn text(&self) -> String {
        let mut out = String::new();
        self.print(&mut out, "");
        out
    }

    fn print(&self, out: &mut String, indent: &str) {
        let width = |row: &Row| match row {
            Row::Value { name, .. } => name.len(),
            Row::List { name, tables } => name.len() + if tables.is_empty() { 0 } else { 3 },
        };
        let width = self.0.iter().map(width).max().unwrap_or(0);
        for row in &self.0 {
            match row {
                Row::Value { name, text, .. } => line(out, indent, name, width, text),
                Row::List { name, tables } if tables.is_empty() => line(out, indent, name, width, "none"),
                Row::List { name, tables } => {
                    for (index, table) in tables.iter().enumerate() {
                        let name = format!("{name} {index:2}");
                        match table.inline() {
                            Some(text) => line(out, indent, &name, width, &text),
                            None => {
                                line(out, indent, &name, width, "");
                                table.print(out, &format!("{indent}  "));
                            }
                        }
                    }
                }
            }
        }
    }

    /// On one line, if it is short.
    fn inline(&self) -> Option<String> {
        if self.0.len() > INLINE_ROWS_MAX {
            return None;
        }
        let parts = self.0.iter().map(|row| match row {
            Row::Value { name, text, .. } => Some(format!("{name}:{text}")),
            Row::List { .. } => None,
        });
        Some(parts.collect::<Option<Vec<_>>>()?.join(" "))
    }

    fn value(&self) -> Value {
        let pairs = self.0.iter().map(|row| match row {
            Row::Value { name, json, .. } => (name.clone(), json.clone()),
            Row::List { name, tables } => ((*name).to_owned(), tables.iter().map(Table::value).collect()),
        });
        Value::Object(pairs.collect::<Map<_, _>>())
    }

    /// A JSON object.
    pub fn json(&self) -> String {
        format!("{:#}\n", self.value())
    }
}

fn line(out: &mut String, indent: &str, name: &str, width: usize, text: &str) {
    let line = format!("{indent}{name:width$} : {}", crate::failure::printable(text));
    let _ = writeln!(out, "{}", line.trim_end());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let short = |n: u8| Table::default().number("ms", n).unit("lbads", 9 + n, " B");
        let long = (0..5).fold(Table::default(), |table, i: u8| table.number(format!("field_{i}"), i));
        Table::default()
            .words("mn", "Tide\u{1b}water")
            .hex("vid", 0x1b36_u16)
            .list("lbaf", vec![short(0), short(3)])
            .list("lane", vec![long])
            .list("entry", Vec::new())
    }

    #[test]
    fn names_and_values_are_aligned() {
        let want = "mn      : Tide\u{fffd}water\nvid     : 0x1b36\nlbaf  0 : ms:0 lbads:9 B\nlbaf  1 : ms:3 lbads:12 \
                    B\n\
                    lane  0 :\n  field_0 : 0\n  field_1 : 1\n  field_2 : 2\n  field_3 : 3\n  field_4 : 4\nentry   : \
                    none\n";
        assert_eq!(table().text(), want);
    }

    #[test]
    fn json_has_the_same_names_and_whole_numbers() {
        let value: Value = serde_json::from_str(&table().json()).unwrap();
        assert_eq!(value["vid"], 0x1b36);
        assert_eq!(value["lbaf"][1]["lbads"], 12);
        assert_eq!(value["lane"][0]["field_4"], 4);
        assert_eq!(value["entry"], Value::Array(Vec::new()));
        let big: Value = serde_json::from_str(&Table::default().number("n", 1_u128 << 64).json()).unwrap();
        assert_eq!(big["n"], "18446744073709551616");
    }
}
