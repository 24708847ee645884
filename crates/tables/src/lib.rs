//! Tables as files that other programs read: CSV, Parquet and Arrow IPC, by the ending of a file's name.

mod requests;

pub use requests::{Batches, REQUEST_COLUMNS, Requests, request_schema};

use arrow_array::{ArrayRef, BooleanArray, Float64Array, RecordBatch, StringArray, UInt64Array};
use arrow_ipc::writer::FileWriter;
use arrow_schema::{ArrowError, DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use tidewater_report::table::{Column, Table, Values};

/// How a table is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Text, a line for each row.
    Csv,
    /// Parquet, compressed by Snappy.
    Parquet,
    /// Arrow IPC, the file format (Feather version 2).
    Arrow,
}

impl Format {
    /// The format that a file's name ends with: `.csv`, `.parquet`, `.arrow`, `.feather`.
    ///
    /// # Errors
    /// In words, when it ends otherwise.
    pub fn of(path: &Path) -> Result<Format, String> {
        let end = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
        match end.as_str() {
            "csv" => Ok(Format::Csv),
            "parquet" => Ok(Format::Parquet),
            "arrow" | "feather" => Ok(Format::Arrow),
            _ => Err(format!(
                "{}: the ending says how a table is written; give a name that ends with .csv, .parquet or .arrow",
                path.display()
            )),
        }
    }
}

/// The table as an Arrow batch of one piece.
///
/// # Errors
/// When its columns are not of one length.
pub fn batch(table: &Table) -> Result<RecordBatch, ArrowError> {
    let fields: Vec<Field> =
        table.columns.iter().map(|Column { name, values }| Field::new(name, kind(values), true)).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), table.columns.iter().map(|c| array(&c.values)).collect())
}

fn kind(values: &Values) -> DataType {
    match values {
        Values::Float(_) => DataType::Float64,
        Values::Count(_) => DataType::UInt64,
        Values::Text(_) => DataType::Utf8,
        Values::Flag(_) => DataType::Boolean,
    }
}

fn array(values: &Values) -> ArrayRef {
    match values {
        Values::Float(values) => Arc::new(Float64Array::from(values.clone())),
        Values::Count(values) => Arc::new(UInt64Array::from(values.clone())),
        Values::Text(values) => Arc::new(StringArray::from(values.clone())),
        Values::Flag(values) => Arc::new(BooleanArray::from(values.clone())),
    }
}

/// The table as the bytes of a file. Equal tables are equal bytes.
///
/// # Errors
/// When its columns are not of one length.
pub fn encode(table: &Table, format: Format) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    match format {
        Format::Csv => out = table.csv().into_bytes(),
        Format::Parquet => {
            let batch = batch(table).map_err(io::Error::other)?;
            let mut writer = parquet_writer(&mut out, &batch.schema()).map_err(io::Error::other)?;
            writer.write(&batch).map_err(io::Error::other)?;
            writer.close().map_err(io::Error::other)?;
        }
        Format::Arrow => {
            let batch = batch(table).map_err(io::Error::other)?;
            let mut writer = FileWriter::try_new(&mut out, &batch.schema()).map_err(io::Error::other)?;
            writer.write(&batch).map_err(io::Error::other)?;
            writer.finish().map_err(io::Error::other)?;
        }
    }
    Ok(out)
}

fn parquet_writer<W: io::Write + Send>(out: W, schema: &Arc<Schema>) -> Result<ArrowWriter<W>, ParquetError> {
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_created_by(format!("tidewater {}", env!("CARGO_PKG_VERSION")))
        .build();
    ArrowWriter::try_new(out, Arc::clone(schema), Some(properties))
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::Csv => "CSV",
            Format::Parquet => "Parquet",
            Format::Arrow => "Arrow",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_ipc::reader::FileReader;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

    fn table() -> Table {
        let column = |name: &str, values| Column { name: name.into(), values };
        Table {
            columns: vec![
                column("run", Values::Text(vec![Some("a,b".into()), None])),
                column("iops", Values::Float(vec![Some(0.1), None])),
                column("seed", Values::Count(vec![Some(u64::MAX), Some(2)])),
                column("partial", Values::Flag(vec![Some(true), Some(false)])),
            ],
        }
    }

    #[test]
    fn what_is_written_reads_back_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let expected = batch(&table()).unwrap();
        let path = folder.path().join("t.parquet");
        std::fs::write(&path, encode(&table(), Format::Parquet).unwrap()).unwrap();
        let file = std::fs::File::open(&path).unwrap();
        let read: Vec<RecordBatch> =
            ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap().map(Result::unwrap).collect();
        assert_eq!(read[0].columns(), expected.columns());
        let bytes = encode(&table(), Format::Arrow).unwrap();
        let read: Vec<RecordBatch> =
            FileReader::try_new(io::Cursor::new(bytes), None).unwrap().map(Result::unwrap).collect();
        assert_eq!(read, [expected]);
        let csv = String::from_utf8(encode(&table(), Format::Csv).unwrap()).unwrap();
        assert_eq!(csv, "run,iops,seed,partial\n\"a,b\",0.1,18446744073709551615,true\n,,2,false\n");
        assert_eq!(encode(&table(), Format::Parquet).unwrap(), encode(&table(), Format::Parquet).unwrap());
    }

    #[test]
    fn the_ending_decides() {
        for (name, format) in [("a.csv", Format::Csv), ("b/c.Parquet", Format::Parquet), ("d.feather", Format::Arrow)] {
            assert_eq!(Format::of(Path::new(name)), Ok(format));
        }
        for name in ["a", "a.txt", ".csv/a", "-"] {
            assert!(Format::of(Path::new(name)).unwrap_err().contains(".parquet"), "{name}");
        }
    }
}
