//! Tables in and out by the Arrow PyCapsule interface: pointers in capsules, which Python hands from one library to
//! another.
#![allow(unsafe_code)]

use crate::errors;
use arrow_array::ffi::FFI_ArrowSchema;
use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::{RecordBatch, RecordBatchIterator};
use arrow_schema::{Schema, SchemaRef};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::ffi::CStr;

const STREAM: &CStr = c"arrow_array_stream";
const SCHEMA: &CStr = c"arrow_schema";

/// A capsule with a stream of these pieces.
///
/// # Errors
/// When Python has no memory for it.
pub fn stream<'py>(py: Python<'py>, schema: SchemaRef, pieces: Vec<RecordBatch>) -> PyResult<Bound<'py, PyCapsule>> {
    let reader = RecordBatchIterator::new(pieces.into_iter().map(Ok), schema);
    PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(reader)), STREAM)
}

/// A capsule with the names and types of the columns.
///
/// # Errors
/// When a type has no such form, which no table of ours has.
pub fn schema<'py>(py: Python<'py>, schema: &Schema) -> PyResult<Bound<'py, PyCapsule>> {
    let schema = FFI_ArrowSchema::try_from(schema).map_err(|error| errors::run(py, &error))?;
    PyCapsule::new_with_value(py, schema, SCHEMA)
}

/// The pieces of a table that another library offers in a capsule.
///
/// # Errors
/// When it is no such capsule, has been read already, or its library fails.
pub fn read(capsule: &Bound<'_, PyCapsule>) -> PyResult<(SchemaRef, Vec<RecordBatch>)> {
    let py = capsule.py();
    let place = capsule.pointer_checked(Some(STREAM))?.cast::<FFI_ArrowArrayStream>();
    // SAFETY: by the Arrow PyCapsule interface a capsule of this name points to such a stream, which lives as long as
    // the capsule; the reader takes it, and leaves one there that is marked as released.
    let reader = unsafe { RecordBatchStreamReader::from_raw(place.as_ptr()) };
    let reader = reader.map_err(|error| errors::usage(py, &error))?;
    let schema = arrow_array::RecordBatchReader::schema(&reader);
    let pieces = reader.collect::<Result<Vec<RecordBatch>, _>>().map_err(|error| errors::usage(py, &error))?;
    Ok((schema, pieces))
}
