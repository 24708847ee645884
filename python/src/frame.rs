//! A trace from a data frame: its rows as lines of the text that the trace reader takes.

use crate::{capsules, errors};
use arrow_array::cast::AsArray as _;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array as _, ArrayRef, RecordBatch, StringArray};
use arrow_cast::cast;
use arrow_schema::{DataType, TimeUnit};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use tidewater_sim::trace::Input;
use tidewater_study::{Failure, Subject};

/// Names of columns besides those of the trace reader, and which of those they are.
const ALIASES: [(&str, &str); 8] = [
    ("arrival_us", "time_us"),
    ("operation", "op"),
    ("size", "bytes"),
    ("length", "bytes"),
    ("offset_bytes", "offset"),
    ("length_bytes", "bytes"),
    ("size_bytes", "bytes"),
    ("address", "offset"),
];

/// The columns that the trace reader takes.
const KNOWN: [&str; 18] = [
    "time_s",
    "time_ms",
    "time_us",
    "time_ns",
    "time_100ns",
    "op",
    "op_1w",
    "op_1r",
    "offset",
    "sector",
    "lba",
    "lba_4k",
    "bytes",
    "sectors",
    "blocks",
    "blocks_4k",
    "kib",
    "device",
];

/// The columns that a table of a trace may have, other names of them included.
#[pyfunction]
pub fn trace_columns() -> Vec<&'static str> {
    let aliases = ALIASES.iter().map(|(name, _)| *name);
    KNOWN.into_iter().chain(aliases).chain(TIMES).collect()
}

/// Names of a time in seconds.
const TIMES: [&str; 2] = ["time", "timestamp"];

/// Arguments of [`Data::restore`].
type Restored = (Vec<u8>, String, usize);

/// A trace in memory.
#[pyclass(frozen, module = "tidewater_ssd._native")]
pub struct Data {
    bytes: Arc<[u8]>,
    columns: String,
    rows: usize,
}

impl Data {
    /// Input of the trace reader.
    pub fn input(&self, name: &str) -> Input {
        Input::Bytes { name: name.to_owned(), bytes: Arc::clone(&self.bytes) }
    }
}

#[pymethods]
impl Data {
    /// The rows of a table that another library offers in a capsule.
    #[new]
    fn new(py: Python<'_>, capsule: &Bound<'_, PyCapsule>) -> PyResult<Data> {
        let (schema, pieces) = capsules::read(capsule)?;
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        py.detach(|| text(&names, &pieces)).map_err(|failure| errors::of(py, &failure))
    }

    /// Rows whose values are texts, by columns.
    #[staticmethod]
    fn of_columns(py: Python<'_>, columns: Vec<(String, Vec<String>)>) -> PyResult<Data> {
        let arrays = columns.iter().map(|(name, values)| {
            let array: ArrayRef = Arc::new(StringArray::from_iter_values(values));
            (name, array)
        });
        let piece = RecordBatch::try_from_iter(arrays).map_err(|error| errors::usage(py, &error))?;
        let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
        text(&names, &[piece]).map_err(|failure| errors::of(py, &failure))
    }

    /// The same trace again, for another process.
    #[staticmethod]
    fn restore(bytes: &[u8], columns: String, rows: usize) -> Data {
        Data { bytes: Arc::from(bytes), columns, rows }
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Restored)> {
        let data = slf.get();
        Ok((slf.getattr("restore")?, (data.bytes.to_vec(), data.columns.clone(), data.rows)))
    }

    /// Its columns, as `--columns` takes them.
    #[getter]
    fn columns(&self) -> &str {
        &self.columns
    }

    fn __len__(&self) -> usize {
        self.rows
    }

    /// The digest of its content.
    fn digest(&self) -> String {
        blake3::hash(&self.bytes).to_hex()[..32].to_owned()
    }

    /// Writes it as a file.
    fn write(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let written = py.detach(|| std::fs::write(&path, &self.bytes));
        written.map_err(|error| errors::run(py, &format_args!("cannot write {}: {error}", path.display())))
    }
}

/// The name of a column of times of this type; `None`: it has numbers.
fn of_type(kind: &DataType) -> Option<&'static str> {
    match kind {
        DataType::Timestamp(unit, _) | DataType::Duration(unit) => Some(match unit {
            TimeUnit::Second => "time_s",
            TimeUnit::Millisecond => "time_ms",
            TimeUnit::Microsecond => "time_us",
            TimeUnit::Nanosecond => "time_ns",
        }),
        _ => None,
    }
}

/// The trace reader's name of a column of this name and type; `None`: it is none of a trace.
fn column(name: &str, kind: &DataType) -> Option<&'static str> {
    let name = name.trim().to_lowercase();
    if TIMES.contains(&name.as_str()) {
        return Some(of_type(kind).unwrap_or("time_s"));
    }
    let alias = ALIASES.iter().find(|(known, _)| *known == name).map(|(_, meant)| *meant);
    let known = alias.or_else(|| KNOWN.into_iter().find(|known| *known == name))?;
    // Dates have the unit of their type, whatever the column is called.
    Some(if known.starts_with("time_") { of_type(kind).unwrap_or(known) } else { known })
}

/// The rows as lines.
fn text(names: &[&str], pieces: &[RecordBatch]) -> Result<Data, Failure> {
    let refused = |why: String, line| Failure::usage(why).of(Subject::Trace { line });
    let mut used: Vec<(usize, &'static str)> = Vec::new();
    if let Some(piece) = pieces.first() {
        for (at, name) in names.iter().enumerate() {
            used.extend(column(name, piece.column(at).data_type()).map(|known| (at, known)));
        }
    }
    let columns = used.iter().map(|(_, known)| *known).collect::<Vec<_>>().join(",");
    let has = |wanted: &[&str]| used.iter().any(|(_, known)| wanted.contains(known));
    if pieces.iter().all(|piece| piece.num_rows() == 0) {
        return Err(refused("the table has no rows".into(), None));
    }
    if !has(&["op", "op_1w", "op_1r"]) || !has(&KNOWN[8..12]) || !has(&KNOWN[12..17]) {
        let why = format!("the table has no trace: its columns are {}", names.join(", "));
        let help = "it needs an operation (op), a place (offset in bytes, sector, lba) and a size (bytes, sectors, \
                    kib), and may have a time (time_us, time_s)";
        return Err(refused(why, None).help(help));
    }
    let (mut out, mut rows) = (String::new(), 0usize);
    for piece in pieces {
        let values: Vec<Cells> =
            used.iter().map(|(at, known)| Cells::of(piece.column(*at), known)).collect::<Result<_, _>>()?;
        for row in 0..piece.num_rows() {
            rows += 1;
            for (at, cells) in values.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                if !cells.write(row, &mut out) {
                    let (of, _) = used[at];
                    return Err(refused(format!("row {rows}: {} has no value", names[of]), Some(rows as u64)));
                }
            }
            out.push('\n');
        }
    }
    Ok(Data { bytes: Arc::from(out.into_bytes()), columns, rows })
}

/// A column in a type that is written as text.
enum Cells {
    Whole(ArrayRef),
    Number(ArrayRef),
    Text(ArrayRef),
}

impl Cells {
    fn of(column: &ArrayRef, known: &str) -> Result<Cells, Failure> {
        use DataType as T;
        let cast = |kind: &T| {
            cast(column, kind)
                .map_err(|error| Failure::usage(format_args!("{known}: {error}")).of(Subject::Trace { line: None }))
        };
        Ok(match column.data_type() {
            T::Float16 | T::Float32 | T::Float64 => Cells::Number(cast(&T::Float64)?),
            T::Utf8 | T::LargeUtf8 | T::Utf8View | T::Dictionary(..) | T::UInt64 | T::Decimal128(..) => {
                Cells::Text(cast(&T::Utf8)?)
            }
            _ => Cells::Whole(cast(&T::Int64)?),
        })
    }

    /// Writes a cell; whether it has a value.
    fn write(&self, row: usize, out: &mut String) -> bool {
        match self {
            Cells::Whole(values) | Cells::Number(values) | Cells::Text(values) if values.is_null(row) => false,
            // A text takes every write.
            Cells::Whole(values) => write!(out, "{}", values.as_primitive::<Int64Type>().value(row)).is_ok(),
            Cells::Number(values) => write!(out, "{}", values.as_primitive::<Float64Type>().value(row)).is_ok(),
            Cells::Text(values) => write!(out, "{}", values.as_string::<i32>().value(row)).is_ok(),
        }
    }
}
