//! Tables that other libraries read by the Arrow PyCapsule interface.

use crate::{capsules, errors};
use arrow_array::cast::AsArray as _;
use arrow_array::types::{Float64Type, UInt64Type};
use arrow_array::{Array as _, ArrayRef, RecordBatch};
use arrow_schema::{DataType, SchemaRef};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyList};
use std::path::PathBuf;
use tidewater_report::table::{self, Column, Values};
use tidewater_tables::{self as tables, Format};

/// Columns of one length, in pieces.
#[pyclass(frozen, module = "tidewater_ssd._native")]
pub struct Table {
    schema: SchemaRef,
    pieces: Vec<RecordBatch>,
}

impl Table {
    /// A table of these pieces.
    pub fn new(schema: SchemaRef, pieces: Vec<RecordBatch>) -> Table {
        Table { schema, pieces }
    }

    /// A table of a record.
    ///
    /// # Errors
    /// When its columns are not of one length, which is a bug.
    pub fn of(py: Python<'_>, table: &table::Table) -> PyResult<Table> {
        let piece = tables::batch(table).map_err(|error| errors::run(py, &error))?;
        Ok(Table { schema: piece.schema(), pieces: vec![piece] })
    }

    /// The same as columns of plain values.
    fn plain(&self) -> table::Table {
        let arrays = |at: usize| self.pieces.iter().map(move |piece| piece.column(at));
        let columns = self.schema.fields().iter().enumerate().map(|(at, field)| Column {
            name: field.name().clone(),
            values: match field.data_type() {
                DataType::Float64 => Values::Float(arrays(at).flat_map(|a| a.as_primitive::<Float64Type>()).collect()),
                DataType::UInt64 => Values::Count(arrays(at).flat_map(|a| a.as_primitive::<UInt64Type>()).collect()),
                DataType::Boolean => Values::Flag(arrays(at).flat_map(|a| a.as_boolean()).collect()),
                // Tables have no other types.
                _ => {
                    Values::Text(arrays(at).flat_map(|a| a.as_string::<i32>()).map(|v| v.map(str::to_owned)).collect())
                }
            },
        });
        table::Table { columns: columns.collect() }
    }
}

#[pymethods]
impl Table {
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // By the interface, a wish that can't be met is passed over.
        drop(requested_schema);
        // Pieces share their columns: nothing is copied.
        capsules::stream(py, self.schema.clone(), self.pieces.clone())
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        capsules::schema(py, &self.schema)
    }

    fn __len__(&self) -> usize {
        self.pieces.iter().map(RecordBatch::num_rows).sum()
    }

    /// The names of the columns.
    #[getter]
    fn columns(&self) -> Vec<String> {
        self.schema.fields().iter().map(|field| field.name().clone()).collect()
    }

    /// The values of a column; `None` where a row has none.
    fn column<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for piece in &self.pieces {
            let column = piece.column_by_name(name).ok_or_else(|| {
                errors::usage(py, &format_args!("there is no column {name}; there are {}", self.columns().join(", ")))
            })?;
            append(&list, column)?;
        }
        Ok(list)
    }

    /// Writes it as .csv, .parquet or .arrow, by the ending of the name.
    fn write(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let format = Format::of(&path).map_err(|why| errors::usage(py, &why))?;
        let written =
            py.detach(|| tables::encode(&self.plain(), format).and_then(|bytes| std::fs::write(&path, bytes)));
        written.map_err(|error| errors::run(py, &format_args!("cannot write {}: {error}", path.display())))
    }
}

fn append(list: &Bound<'_, PyList>, column: &ArrayRef) -> PyResult<()> {
    match column.data_type() {
        DataType::Float64 => column.as_primitive::<Float64Type>().iter().try_for_each(|value| list.append(value)),
        DataType::UInt64 => column.as_primitive::<UInt64Type>().iter().try_for_each(|value| list.append(value)),
        DataType::Boolean => column.as_boolean().iter().try_for_each(|value| list.append(value)),
        // Tables have no other types.
        _ => column.as_string::<i32>().iter().try_for_each(|value| list.append(value)),
    }
}
