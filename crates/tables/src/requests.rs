//! The requests of a run as Parquet or Arrow, a piece at a time: memory does not grow with their number.

use super::{Format, parquet_writer};
use arrow_array::builder::{Float64Builder, StringBuilder, UInt64Builder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_ipc::writer::FileWriter;
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use tidewater_report::requests::{CsvRequests, RequestDone, RequestSink};

/// The columns, with what they are: those of the CSV.
pub const REQUEST_COLUMNS: [(&str, &str); 7] = [
    ("index", "the request's number in the load, from 0"),
    ("arrival_us", "from when its latency counts: its arrival, or its submission where arrivals are ignored"),
    ("operation", "what it asked for"),
    ("offset_bytes", "its first byte"),
    ("length_bytes", "its bytes"),
    ("latency_us", "from then to its completion"),
    ("status", "`success`, or the name of its status"),
];

/// Requests in a piece.
const PIECE: usize = 1 << 16;
/// Pieces in a row group of Parquet: what a reader takes at once, and what is in memory before it is written.
const PIECES_IN_GROUP: usize = 8;

/// Takes requests, and writes them to `W`.
pub struct Requests<W: io::Write + Send>(Kind<W>);

enum Kind<W: io::Write + Send> {
    Csv(CsvRequests<W>),
    Pieces(Box<Pieces>, Writer<W>),
}

enum Writer<W: io::Write + Send> {
    Parquet(Option<Box<ArrowWriter<W>>>, usize),
    Arrow(Box<FileWriter<W>>),
}

impl<W: io::Write + Send> Requests<W> {
    /// Writes to `out` in this format.
    ///
    /// # Errors
    /// When the head of the file can't be written.
    pub fn new(out: W, format: Format) -> io::Result<Requests<W>> {
        let schema = request_schema();
        Ok(Requests(match format {
            Format::Csv => Kind::Csv(CsvRequests::new(out)),
            Format::Parquet => {
                let writer = parquet_writer(out, &schema).map_err(io::Error::other)?;
                Kind::Pieces(Box::default(), Writer::Parquet(Some(Box::new(writer)), 0))
            }
            Format::Arrow => {
                let writer = FileWriter::try_new(out, &schema).map_err(io::Error::other)?;
                Kind::Pieces(Box::default(), Writer::Arrow(Box::new(writer)))
            }
        }))
    }
}

impl<W: io::Write + Send> RequestSink for Requests<W> {
    fn take(&mut self, request: &RequestDone) -> io::Result<()> {
        match &mut self.0 {
            Kind::Csv(lines) => lines.take(request),
            Kind::Pieces(pieces, writer) => {
                pieces.add(request);
                if pieces.rows == PIECE { writer.write(pieces) } else { Ok(()) }
            }
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        match &mut self.0 {
            Kind::Csv(lines) => lines.finish(),
            Kind::Pieces(pieces, writer) => {
                if pieces.rows > 0 {
                    writer.write(pieces)?;
                }
                writer.finish()
            }
        }
    }
}

impl<W: io::Write + Send> Writer<W> {
    fn write(&mut self, pieces: &mut Pieces) -> io::Result<()> {
        let batch = pieces.take()?;
        match self {
            Writer::Parquet(Some(writer), written) => {
                writer.write(&batch).map_err(io::Error::other)?;
                *written += 1;
                if written.is_multiple_of(PIECES_IN_GROUP) {
                    writer.flush().map_err(io::Error::other)?;
                }
                Ok(())
            }
            Writer::Parquet(None, _) => Err(io::Error::other("the table has been ended")),
            Writer::Arrow(writer) => writer.write(&batch).map_err(io::Error::other),
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        match self {
            Writer::Parquet(writer, _) => match writer.take() {
                Some(writer) => writer.into_inner().map_err(io::Error::other)?.flush(),
                None => Ok(()),
            },
            Writer::Arrow(writer) => {
                writer.finish().map_err(io::Error::other)?;
                writer.get_mut().flush()
            }
        }
    }
}

/// Takes requests, and keeps them as Arrow pieces in memory.
#[derive(Clone, Default)]
pub struct Batches(Arc<Mutex<Vec<RecordBatch>>>);

impl Batches {
    /// Where they go in.
    pub fn sink(&self) -> impl RequestSink + Send + use<> {
        BatchSink { pieces: Box::default(), done: Arc::clone(&self.0) }
    }

    /// The pieces, with the columns of [`request_schema`].
    pub fn take(self) -> Vec<RecordBatch> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

struct BatchSink {
    pieces: Box<Pieces>,
    done: Arc<Mutex<Vec<RecordBatch>>>,
}

impl BatchSink {
    fn keep(&mut self) -> io::Result<()> {
        let piece = self.pieces.take()?;
        self.done.lock().unwrap_or_else(PoisonError::into_inner).push(piece);
        Ok(())
    }
}

impl RequestSink for BatchSink {
    fn take(&mut self, request: &RequestDone) -> io::Result<()> {
        self.pieces.add(request);
        if self.pieces.rows == PIECE { self.keep() } else { Ok(()) }
    }

    fn finish(&mut self) -> io::Result<()> {
        if self.pieces.rows > 0 { self.keep() } else { Ok(()) }
    }
}

/// The requests of the piece that is being filled.
#[derive(Default)]
struct Pieces {
    rows: usize,
    index: UInt64Builder,
    arrival: Float64Builder,
    operation: StringBuilder,
    offset: UInt64Builder,
    length: UInt64Builder,
    latency: Float64Builder,
    status: StringBuilder,
}

impl Pieces {
    fn add(&mut self, request: &RequestDone) {
        let us = |ps: u64| ps as f64 / 1e6;
        self.index.append_value(request.index);
        self.arrival.append_value(us(request.start_ps));
        self.operation.append_value(request.operation);
        self.offset.append_value(request.offset);
        self.length.append_value(request.length);
        self.latency.append_value(us(request.latency_ps));
        self.status.append_value(request.status);
        self.rows += 1;
    }

    fn take(&mut self) -> io::Result<RecordBatch> {
        self.rows = 0;
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.index.finish()),
            Arc::new(self.arrival.finish()),
            Arc::new(self.operation.finish()),
            Arc::new(self.offset.finish()),
            Arc::new(self.length.finish()),
            Arc::new(self.latency.finish()),
            Arc::new(self.status.finish()),
        ];
        RecordBatch::try_new(request_schema(), columns).map_err(io::Error::other)
    }
}

/// The names and types of the columns of requests.
pub fn request_schema() -> Arc<Schema> {
    let kind = |name: &str| match name {
        "operation" | "status" => DataType::Utf8,
        "arrival_us" | "latency_us" => DataType::Float64,
        _ => DataType::UInt64,
    };
    Arc::new(Schema::new(REQUEST_COLUMNS.map(|(name, _)| Field::new(name, kind(name), false)).to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::cast::AsArray as _;
    use arrow_array::types::{Float64Type, UInt64Type};
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

    #[test]
    fn every_request_is_in_the_table_once_whatever_the_number_of_pieces() {
        let folder = tempfile::tempdir().unwrap();
        let count = (PIECE * (PIECES_IN_GROUP + 1)) as u64 + 5;
        let all = (0..count).map(|index| RequestDone {
            index,
            start_ps: index * 1_000_000,
            operation: if index % 3 == 0 { "read" } else { "write" },
            offset: index * 4096,
            length: 4096,
            latency_ps: 2_500_000,
            status: "success",
        });
        let path = folder.path().join("r.parquet");
        let file = std::fs::File::create(&path).unwrap();
        let mut sink = Requests::new(file, Format::Parquet).unwrap();
        all.for_each(|request| sink.take(&request).unwrap());
        sink.finish().unwrap();
        let reader = ParquetRecordBatchReaderBuilder::try_new(std::fs::File::open(&path).unwrap()).unwrap();
        assert_eq!(reader.metadata().num_row_groups(), 2);
        let (mut rows, mut sum, mut latency, mut reads) = (0, 0, 0.0, 0);
        for batch in reader.build().unwrap().map(Result::unwrap) {
            rows += batch.num_rows() as u64;
            sum += batch.column(0).as_primitive::<UInt64Type>().values().iter().sum::<u64>();
            latency += batch.column(5).as_primitive::<Float64Type>().values().iter().sum::<f64>();
            reads += batch.column(2).as_string::<i32>().iter().filter(|word| *word == Some("read")).count() as u64;
        }
        assert_eq!((rows, sum, reads), (count, count * (count - 1) / 2, count.div_ceil(3)));
        assert_eq!(latency, 2.5 * count as f64);
    }
}
