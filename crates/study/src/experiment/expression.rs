//! Expressions of an experiment's file: Jinja's, over the figures of a run or the rows of the experiment.

use minijinja::value::{Kwargs, Object, Rest, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Steps that an expression may take: far more than any that says something, and an end of those that say nothing.
const STEPS_MAX: u64 = 1_000_000;

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
        let mut environment = environment();
        if let Some(rows) = rows {
            let (of_row, of_column) = (rows.clone(), rows.clone());
            environment.add_function("row", move |values: Rest<Value>, given: Kwargs| of_row.row(&values, &given));
            environment.add_function("column", move |name: &str, values: Rest<Value>, given: Kwargs| {
                of_column.column(name, &values, &given)
            });
        }
        let expression = environment.compile_expression(&self.text).map_err(|error| one_line(&error))?;
        if let Some(unknown) = expression
            .undeclared_variables(false)
            .into_iter()
            .find(|name| !names.contains_key(name) && environment.globals().all(|(global, _)| global != name.as_str()))
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

    /// Its value as a number.
    ///
    /// # Errors
    /// As [`Expression::value`], and when it is none.
    pub fn number(&self, names: &Names) -> Result<f64, String> {
        let value = self.value(names, None)?;
        f64::try_from(value.clone())
            .ok()
            .filter(|number| number.is_finite())
            .ok_or_else(|| format!("`{}` is {value}, not a number", self.text))
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

/// The rows of an experiment: what varies, as written, and the columns.
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
    pub values: Vec<String>,
    /// Those of the columns.
    pub numbers: Vec<f64>,
}

impl Rows {
    /// The place of a key, by its name or the last part of it.
    pub fn key(&self, name: &str) -> Option<usize> {
        self.keys.iter().position(|key| is_called(key, name))
    }

    /// A row as a map: keys by their last part, and columns.
    fn map(&self, Row { values, numbers }: &Row) -> Value {
        let keys = self.keys.iter().map(|key| short(key).to_owned()).zip(values.iter().map(Value::from));
        let columns = self.columns.iter().cloned().zip(numbers.iter().map(|&number| Value::from(number)));
        Value::from_object(Fields(keys.chain(columns).collect()))
    }

    /// Rows in which every given value is that of some key, and every named one that of its key.
    fn chosen(&self, values: &[Value], given: &Kwargs) -> Result<Vec<&Row>, Error> {
        let mut named = Vec::new();
        for name in given.args() {
            let Some(at) = self.key(name) else {
                return Err(wrong(format!("`{name}` does not vary")));
            };
            named.push((at, text(&given.get::<Value>(name)?)));
        }
        let known = |value: &Value| self.rows.iter().any(|row| row.values.contains(&text(value)));
        if let Some(value) = values.iter().find(|value| !known(value)) {
            return Err(wrong(format!("no row has the value `{value}`")));
        }
        let matches = |row: &&Row| {
            values.iter().all(|value| row.values.contains(&text(value)))
                && named.iter().all(|(at, value)| row.values[*at] == *value)
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
        let Some(at) = self.columns.iter().position(|column| column == name) else {
            return Err(wrong(format!("there is no column `{name}`")));
        };
        Ok(self.chosen(values, given)?.into_iter().map(|row| row.numbers[at]).collect())
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

fn text(value: &Value) -> String {
    value.to_string()
}

fn wrong(text: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidOperation, text)
}

fn one_line(error: &Error) -> String {
    let text = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    text.lines().collect::<Vec<_>>().join(" ")
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
    environment
        .add_filter("median", |values: Vec<f64>| median(&values).ok_or_else(|| wrong("the median of no numbers")));
    environment.add_filter("mean", |values: Vec<f64>| {
        if values.is_empty() { Err(wrong("the mean of no numbers")) } else { Ok(mean(&values)) }
    });
    environment
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
        let row =
            |op: &str, drive: &str, waf: f64| Row { values: vec![op.to_owned(), drive.to_owned()], numbers: vec![waf] };
        Rows {
            keys: vec!["ftl.over_provisioning".into(), "profile".into()],
            columns: vec!["waf".into()],
            rows: Arc::new(vec![row("7%", "a", 6.0), row("7%", "b", 5.0), row("28%", "a", 2.0), row("28%", "b", 1.5)]),
        }
    }

    fn value(text: &str) -> Result<String, String> {
        let names = Names::from([("waf".to_owned(), Value::from(1.5)), ("reads".to_owned(), Value::from(7))]);
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
        ] {
            assert_eq!(value(text).as_deref(), Ok(expected), "{text}");
        }
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
        ] {
            let error = value(text).unwrap_err();
            assert!(error.contains(expected) && !error.contains('\n'), "{text}: {error}");
        }
        let names = Names::new();
        assert!(Expression::new("'x'").unwrap().number(&names).unwrap_err().contains("not a number"));
        assert!(Expression::new("3").unwrap().holds(&names, &rows()).unwrap_err().contains("neither true nor false"));
    }
}
