//! Expressions of an experiment's file, and texts with expressions in them: Jinja's, over the figures of a run or the
//! rows of the experiment.

use minijinja::value::{Kwargs, Object, Rest, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, UndefinedBehavior};
use std::collections::BTreeMap;
use std::sync::Arc;
use tidewater_base::units::{format_bytes, format_rate};

/// Steps that an expression may take: far more than any that says something, and an end of those that say nothing.
const STEPS_MAX: u64 = 1_000_000;
/// How deep `of` may stand within the text of another `of`.
const DEPTH_MAX: i64 = 8;
/// The name by which an expression knows its depth; none that a file can use.
const DEPTH: &str = "of()";
/// Digits behind the point.
const DIGITS_MAX: usize = 30;

/// One expression, compiled.
#[derive(Clone, Debug)]
pub struct Expression {
    text: String,
}

/// Figures that have a value, by name.
pub type Names = BTreeMap<String, Value>;

impl Expression {
    /// # Errors
    /// When it is none, in one line.
    pub fn new(text: &str) -> Result<Expression, String> {
        environment().compile_expression(text).map_err(|error| one_line(&error))?;
        Ok(Expression { text: text.to_owned() })
    }

    /// Its value.
    ///
    /// # Errors
    /// A name that is not known, with the nearest that is; values that do not fit the operation.
    pub fn value(&self, names: &Names, rows: Option<&Rows>) -> Result<Value, String> {
        let environment = environment_of(rows, names);
        let expression = environment.compile_expression(&self.text).map_err(|error| one_line(&error))?;
        if let Some(unknown) = expression
            .undeclared_variables(false)
            .into_iter()
            .find(|name| environment.globals().all(|(global, _)| global != name.as_str()))
        {
            let known = names.keys().map(String::as_str);
            let meant = crate::meant(&unknown, known).map_or_else(
                || format!("; known are {}", names.keys().cloned().collect::<Vec<_>>().join(", ")),
                |meant| format!("; did you mean `{meant}`?"),
            );
            return Err(format!("`{unknown}` has no value here{meant}"));
        }
        expression.eval(names).map_err(|error| one_line(&error))
    }

    /// Whether it holds.
    ///
    /// # Errors
    /// As [`Expression::value`], and when it is neither true nor false.
    pub fn holds(&self, names: &Names, rows: &Rows) -> Result<bool, String> {
        let value = self.value(names, Some(rows))?;
        if value.kind() == ValueKind::Bool {
            Ok(value.is_true())
        } else {
            Err(format!("`{}` is {value}, neither true nor false", self.text))
        }
    }
}

impl std::fmt::Display for Expression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// Whether a text has expressions in it.
pub fn is_template(text: &str) -> bool {
    text.contains("{{") || text.contains("{%")
}

/// A text, with the values of the expressions in it.
///
/// # Errors
/// As [`Expression::value`].
pub fn text(text: &str, names: &Names, rows: Option<&Rows>) -> Result<String, String> {
    if !is_template(text) {
        return Ok(text.trim().to_owned());
    }
    let written = environment_of(rows, names).render_str(text, names).map_err(|error| one_line(&error))?;
    Ok(written.trim().to_owned())
}

/// The value of a text: that of its expression where it is nothing but `{{ one }}`, else [`text`].
///
/// # Errors
/// As there.
pub fn filled(given: &str, names: &Names) -> Result<Value, String> {
    match given.trim().strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}")) {
        Some(alone) if !is_template(alone) => Expression { text: alone.trim().to_owned() }.value(names, None),
        _ => text(given, names, None).map(Value::from),
    }
}

/// The rows of an experiment: what varies, and the columns.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    /// Keys that vary, in order.
    pub keys: Vec<String>,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// The rows.
    pub rows: Arc<Vec<Row>>,
}

/// One row.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// The values of the keys.
    pub values: Vec<Value>,
    /// The figures that were measured, and the columns.
    pub fields: Names,
    /// No reader sees it.
    pub hidden: bool,
}

impl Rows {
    /// The place of a key, by its name or the last part of it.
    pub fn key(&self, name: &str) -> Option<usize> {
        self.keys.iter().position(|key| is_called(key, name))
    }

    /// A row as a map: keys by their last part, and columns.
    fn map(&self, row: &Row) -> Value {
        Value::from_object(Fields(self.names(row)))
    }

    fn names(&self, Row { values, fields, .. }: &Row) -> Names {
        let keys = self.keys.iter().map(|key| short(key).to_owned()).zip(values.iter().cloned());
        keys.filter(|(_, value)| !value.is_undefined()).chain(fields.clone()).collect()
    }

    /// Of each row for which `when` holds, the value of `each`. Both know the row's keys and columns; the row as
    /// `this`, and that of an expression around this one as `outer`; and `same(key=value)`: the row that differs from
    /// it in that key alone.
    fn of(&self, state: &State<'_, '_>, each: &str, when: Option<&str>) -> Result<Vec<Value>, Error> {
        let depth = state.lookup(DEPTH).and_then(|depth| i64::try_from(depth).ok()).unwrap_or(0);
        if depth >= DEPTH_MAX {
            return Err(wrong(format!("`of` within `of` {DEPTH_MAX} times over")));
        }
        let environment = environment_of(Some(self), &Names::new());
        let compile = |text: &str| environment.compile_expression_owned(text.to_owned());
        let (each, when) = (compile(each)?, when.map(compile).transpose()?);
        // What surrounds the call is known, too.
        let known = state.known_variables().into_iter().map(std::borrow::Cow::into_owned);
        let around: Names = known.filter_map(|name| state.lookup(&name).map(|value| (name, value))).collect();
        let outer = state.lookup("this");
        let mut values = Vec::new();
        for row in self.rows.iter() {
            let mut names = around.clone();
            names.extend(self.names(row));
            names.insert("this".into(), self.map(row));
            names.insert(DEPTH.into(), (depth + 1).into());
            names.extend(outer.clone().map(|outer| ("outer".to_owned(), outer)));
            let (rows, of) = (self.clone(), row.clone());
            names.insert("same".into(), Value::from_function(move |given: Kwargs| rows.same(&of, &given)));
            if when.as_ref().map_or(Ok(true), |when| when.eval(&names).map(|value| value.is_true()))? {
                values.push(each.eval(&names)?);
            }
        }
        Ok(values)
    }

    /// The row that differs from this one in the given keys alone; of a run with several, the one at its place.
    fn same(&self, of: &Row, given: &Kwargs) -> Result<Value, Error> {
        let mut wanted = of.values.clone();
        for name in given.args() {
            let at = self.key(name).ok_or_else(|| wrong(format!("`{name}` does not vary")))?;
            wanted[at] = given.get::<Value>(name)?;
        }
        let is_at = |row: &&Row| row.values == wanted && row.fields.get("part") == of.fields.get("part");
        let row = self.rows.iter().find(is_at);
        row.map(|row| self.map(row)).ok_or_else(|| wrong(format!("no row has {given:?}, and else the same values")))
    }

    /// Rows in which every given value is that of some key, and every named one that of its key.
    fn chosen(&self, values: &[Value], given: &Kwargs) -> Result<Vec<&Row>, Error> {
        let mut named = Vec::new();
        for name in given.args() {
            let Some(at) = self.key(name) else {
                return Err(wrong(format!("`{name}` does not vary")));
            };
            named.push((at, word(&given.get::<Value>(name)?)));
        }
        let has = |row: &Row, value: &Value| row.values.iter().any(|own| word(own) == word(value));
        let known = |value: &Value| self.rows.iter().any(|row| has(row, value));
        if let Some(value) = values.iter().find(|value| !known(value)) {
            return Err(wrong(format!("no row has the value `{value}`")));
        }
        let matches = |row: &&Row| {
            values.iter().all(|value| has(row, value))
                && named.iter().all(|(at, value)| word(&row.values[*at]) == *value)
        };
        Ok(self.rows.iter().filter(matches).collect())
    }

    fn row(&self, values: &[Value], given: &Kwargs) -> Result<Value, Error> {
        match self.chosen(values, given)?[..] {
            [row] => Ok(self.map(row)),
            [] => Err(wrong("no row has these values together")),
            ref rows => Err(wrong(format!("{} rows have these values: name more of them", rows.len()))),
        }
    }

    fn column(&self, name: &str, values: &[Value], given: &Kwargs) -> Result<Value, Error> {
        if !self.columns.iter().any(|column| column == name) {
            return Err(wrong(format!("there is no column `{name}`")));
        }
        Ok(self.chosen(values, given)?.into_iter().filter_map(|row| row.fields.get(name).cloned()).collect())
    }
}

/// A row whose unknown names are an error that says so.
#[derive(Debug)]
struct Fields(BTreeMap<String, Value>);

impl Object for Fields {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.0.get(key.as_str()?).cloned()
    }
}

/// Whether a key is meant by a name: its own, or the last part of it.
pub fn is_called(key: &str, name: &str) -> bool {
    key == name || short(key) == name
}

/// The last part of a key: `over_provisioning` of `ftl.over_provisioning`.
pub fn short(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

fn word(value: &Value) -> String {
    value.to_string()
}

fn wrong(text: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidOperation, text)
}

fn one_line(error: &Error) -> String {
    let text = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    text.lines().collect::<Vec<_>>().join(" ")
}

/// The environment of expressions over rows, if there are some.
fn environment_of(rows: Option<&Rows>, names: &Names) -> Environment<'static> {
    let mut environment = environment();
    // Macros and the expressions in texts of an expression know them, too.
    names.iter().for_each(|(name, value)| environment.add_global(name.clone(), value.clone()));
    if let Some(rows) = rows {
        let [of_row, of_column, of_all] = [(); 3].map(|()| rows.clone());
        environment.add_function("row", move |values: Rest<Value>, given: Kwargs| of_row.row(&values, &given));
        environment.add_function("column", move |name: &str, values: Rest<Value>, given: Kwargs| {
            of_column.column(name, &values, &given)
        });
        environment.add_function("of", move |state: &State<'_, '_>, each: &str, when: Option<&str>| {
            of_all.of(state, each, when)
        });
    }
    environment
}

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(STEPS_MAX));
    let pairs = |values: &[f64], holds: fn(f64, f64) -> bool| values.windows(2).all(|pair| holds(pair[0], pair[1]));
    environment.add_test("rising", move |values: Vec<f64>| pairs(&values, |a, b| a < b));
    environment.add_test("falling", move |values: Vec<f64>| pairs(&values, |a, b| a > b));
    environment.add_test("not_rising", move |values: Vec<f64>| pairs(&values, |a, b| a >= b));
    environment.add_test("not_falling", move |values: Vec<f64>| pairs(&values, |a, b| a <= b));
    environment.add_test("within", |value: f64, low: f64, high: f64| (low..=high).contains(&value));
    environment.add_test("all", |values: Vec<Value>| values.iter().all(Value::is_true));
    // On a linear axis the largest would hide all others.
    environment.add_test("wide", |values: Vec<f64>| {
        let least = values.iter().copied().filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
        values.iter().copied().fold(0.0, f64::max) > 30.0 * least
    });
    environment.add_function("gain", |this: f64, other: f64| gain(this, other));
    environment.add_function("cross", |lists: Rest<Vec<Value>>| cross(&lists));
    environment.add_filter("ranked", |values: Vec<Value>| ranked(&values));
    environment.add_filter("percent_range", |values: Vec<f64>| percent_range(&values));
    environment.add_filter("below_or_above", |gains: Vec<f64>| below_or_above(&gains));
    environment.add_filter("fixed", |value: f64, digits: usize| format!("{value:.*}", digits.min(DIGITS_MAX)));
    environment.add_filter("signed", |value: f64, digits: usize| format!("{value:+.*}", digits.min(DIGITS_MAX)));
    environment
        .add_filter("times", |values: Vec<f64>, by: f64| values.iter().map(|value| by * value).collect::<Vec<_>>());
    environment
        .add_filter("more", |values: Vec<f64>| values.iter().map(|value| 100.0 * (value - 1.0)).collect::<Vec<_>>());
    environment
        .add_filter("us", |time: f64| if time < 10.0 { format!("{time:.3} us") } else { format!("{time:.1} us") });
    environment.add_filter("rate", |rate: f64| format_rate(rate as u64));
    environment.add_filter("bytes", |value: f64| format_bytes(value as u64));
    environment.add_filter("figures", |values: Vec<f64>, unit: &str| format!("{} {unit}", figures(&values)));
    environment
        .add_filter("median", |values: Vec<f64>| median(&values).ok_or_else(|| wrong("the median of no numbers")));
    environment.add_filter("mean", |values: Vec<f64>| {
        if values.is_empty() { Err(wrong("the mean of no numbers")) } else { Ok(mean(&values)) }
    });
    environment
}

/// How much less than `other` this is, in percent of it.
fn gain(this: f64, other: f64) -> f64 {
    if other == 0.0 { 0.0 } else { (other - this) / other * 100.0 }
}

/// Every combination; the last list changes fastest.
fn cross(lists: &[Vec<Value>]) -> Vec<Value> {
    let longer = |all: Vec<Vec<Value>>, list: &Vec<Value>| {
        let with = |one: &Vec<Value>, value: &Value| [&one[..], std::slice::from_ref(value)].concat();
        all.iter().flat_map(|one| list.iter().map(move |value| with(one, value))).collect()
    };
    lists.iter().fold(vec![Vec::new()], longer).into_iter().map(Value::from).collect()
}

/// Names with their values, the least first.
fn ranked(values: &[Value]) -> Result<String, Error> {
    let pair = |pair: &Value| Ok((f64::try_from(pair.get_item_by_index(0)?)?, pair.get_item_by_index(1)?));
    let mut pairs = values.iter().map(pair).collect::<Result<Vec<(f64, Value)>, Error>>()?;
    pairs.sort_by(|a, b| a.0.total_cmp(&b.0));
    Ok(pairs.iter().map(|(value, name)| format!("{name} {value:.0}")).collect::<Vec<_>>().join(", "))
}

fn range(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &value| (low.min(value), high.max(value)))
}

/// `12 to 30 %`; a single value alone.
fn percent_range(values: &[f64]) -> String {
    let (low, high) = range(values);
    let (low, high) = (format!("{low:.0}"), format!("{high:.0}"));
    if low == high { format!("{low} %") } else { format!("{low} to {high} %") }
}

/// Gains in percent of something of which less is better: `8 to 30 % below`, or `3 % above to 30 % below`.
fn below_or_above(gains: &[f64]) -> String {
    let (low, high) = range(gains);
    match (low.round() < 0.0, high.round() < 0.0) {
        (false, _) => format!("{} below", percent_range(gains)),
        (true, true) => format!("{} above", percent_range(&gains.iter().map(|gain| -gain).collect::<Vec<_>>())),
        (true, false) => format!("{:.0} % above to {high:.0} % below", -low),
    }
}

/// Figures with so many digits as say something.
fn figures(values: &[f64]) -> String {
    let digits = |x: &f64| if *x >= 100.0 { format!("{x:.0}") } else { format!("{x:.1}") };
    values.iter().map(digits).collect::<Vec<_>>().join(", ")
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The median; of none, none.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let above = *sorted.get(middle)?;
    Some(if sorted.len().is_multiple_of(2) { f64::midpoint(sorted[middle - 1], above) } else { above })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Rows {
        let row = |op: &str, drive: &str, waf: f64| Row {
            values: vec![Value::from(op), Value::from(drive)],
            fields: Names::from([("waf".to_owned(), Value::from(waf))]),
            hidden: false,
        };
        Rows {
            keys: vec!["ftl.over_provisioning".into(), "profile".into()],
            columns: vec!["waf".into()],
            rows: Arc::new(vec![row("7%", "a", 6.0), row("7%", "b", 5.0), row("28%", "a", 2.0), row("28%", "b", 1.5)]),
        }
    }

    fn value(text: &str) -> Result<String, String> {
        let names = Names::from([
            ("waf".to_owned(), Value::from(1.5)),
            ("reads".to_owned(), Value::from(7)),
            ("least".to_owned(), Value::from(2.5)),
            ("endless".to_owned(), Value::from("of(endless)")),
        ]);
        Ok(Expression::new(text)?.value(&names, Some(&rows()))?.to_string())
    }

    #[test]
    fn figures_rows_and_columns_have_values() {
        for (text, expected) in [
            ("waf * 2 + reads", "10.0"),
            ("column('waf', profile='a')", "[6.0, 2.0]"),
            ("column('waf', '28%') | max", "2.0"),
            ("row('7%', 'b').waf / row('28%', 'b').waf", "3.3333333333333335"),
            ("row(over_provisioning='28%', profile='a').profile", "a"),
            ("column('waf', 'a') is falling", "True"),
            ("column('waf', 'a') is rising", "False"),
            ("column('waf') | median", "3.5"),
            ("column('waf') | mean is within(3, 4)", "True"),
            ("of('waf / same(profile=\"b\").waf', 'profile == \"a\"') | figures('x')", "1.2, 1.3 x"),
            ("of('waf * reads', 'waf < least')", "[14.0, 10.5]"),
            // How many rows with the same setting have less, for each row of one profile.
            (
                "of(\"of('waf < outer.waf', 'over_provisioning == outer.over_provisioning') | select | length\", \
                 \"profile == 'a'\")",
                "[1, 1]",
            ),
            ("7 | fixed(70000) | length", "32"),
            ("(row('7%', 'a').waf | fixed(2)) ~ (waf | signed(1)) ~ (2048 | bytes)", "6.00+1.52KiB"),
        ] {
            assert_eq!(value(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn words_for_figures() {
        assert_eq!(percent_range(&[12.4, -3.2, 29.6]), "-3 to 30 %");
        assert_eq!(percent_range(&[5.0]), "5 %");
        assert_eq!(below_or_above(&[12.4, 29.6]), "12 to 30 % below");
        assert_eq!(below_or_above(&[-235.2, -8.0]), "8 to 235 % above");
        assert_eq!(below_or_above(&[12.4, -3.2, 29.6]), "3 % above to 30 % below");
        assert_eq!((gain(25.0, 100.0), gain(1.0, 0.0)), (75.0, 0.0));
    }

    #[test]
    fn what_is_wrong_is_said_in_one_line() {
        for (text, expected) in [
            ("waff", "`waff` has no value here; did you mean `waf`?"),
            ("column('wav')", "there is no column `wav`"),
            ("row('7%').waf", "2 rows have these values: name more of them"),
            ("row('8%').waf", "no row has the value `8%`"),
            ("row(channels=8)", "`channels` does not vary"),
            ("row('7%', 'a').x + 1", "undefined"),
            ("waf +", "unexpected"),
            ("range(1000000) | list | length", "too many"),
            ("of(endless)", "within `of`"),
        ] {
            let error = value(text).unwrap_err();
            assert!(error.contains(expected) && !error.contains('\n'), "{text}: {error}");
        }
        let names = Names::new();
        assert!(Expression::new("3").unwrap().holds(&names, &rows()).unwrap_err().contains("neither true nor false"));
    }
}
