//! Figures as files for papers: SVG, PDF and PNG, with their font in them.
//!
//! A figure is drawn by `tidewater-report` as an SVG document. Here it gets its font, is measured with it, and gets the
//! room that its words need, so that nothing is cut off.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use resvg::{tiny_skia, usvg};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use tidewater_report::figure::Figure;

/// Inter Regular (font/OFL.txt), Latin, Greek and signs.
const FONT: &[u8] = include_bytes!("../font/Inter-Regular.ttf");
/// The same for browsers.
const WEB_FONT: &[u8] = include_bytes!("../font/Inter-Regular.woff2");
/// Dots per inch of a PNG: what publishers ask of line art on screens and in print.
pub const DPI: f32 = 600.0;
/// Bytes of a PNG up to the end of its first chunk, IHDR (Portable Network Graphics, third edition, 5.2 and 11.2.1).
const PNG_HEAD: usize = 33;
/// The chunk pHYs of [`DPI`]: 23,622 pixels per metre both ways, with its length and checksum (11.3.4.3 there).
const RESOLUTION: [u8; 21] =
    [0, 0, 0, 9, b'p', b'H', b'Y', b's', 0, 0, 0x5c, 0x46, 0, 0, 0x5c, 0x46, 1, 0x14, 0x94, 0x43, 0x41];
/// Room around what reaches beyond the edges, in millimetres.
const EDGE_MM: f64 = 0.4;

/// Width of one of two columns of a paper, in millimetres: 3.3 inches.
pub const COLUMN_MM: f64 = 83.8;
/// Width of both columns, in millimetres: 7 inches.
pub const PAGE_MM: f64 = 177.8;
/// Least width of a figure, in millimetres: below it axes leave no room.
pub const WIDTH_MIN_MM: f64 = 50.0;
/// Greatest width of a figure, in millimetres: the long side of A2.
pub const WIDTH_MAX_MM: f64 = 594.0;

/// File format of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Scalable Vector Graphics, for pages and for drawing programs.
    Svg,
    /// For papers; its words are text.
    Pdf,
    /// Pixels, [`DPI`] of them per inch.
    Png,
}

impl Format {
    /// The format by the ending of a file's name.
    ///
    /// # Errors
    /// Any other ending, by name.
    pub fn of(path: &Path) -> Result<Format, Error> {
        let ending = path.extension().map(|ending| ending.to_string_lossy().to_lowercase());
        match ending.as_deref() {
            Some("svg") => Ok(Format::Svg),
            Some("pdf") => Ok(Format::Pdf),
            Some("png") => Ok(Format::Png),
            _ => Err(Error::Ending { path: path.display().to_string() }),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::Svg => "SVG",
            Format::Pdf => "PDF",
            Format::Png => "PNG",
        })
    }
}

/// Why a figure is not made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name of the file does not say how.
    #[error("{path}: a figure is written as .svg, .pdf or .png; give one of these endings")]
    Ending {
        /// The file.
        path: String,
    },
    /// The drawing can't be read back: a bug.
    #[error("the figure {name} is no drawing: {why}")]
    Drawing {
        /// The figure.
        name: String,
        /// The reader's error.
        why: String,
    },
}

/// A figure that is drawn, measured, and has the room it needs.
pub struct Drawing {
    name: String,
    svg: String,
    tree: usvg::Tree,
}

/// Options with our font alone: a figure is the same on every machine.
static OPTIONS: LazyLock<usvg::Options<'static>> = LazyLock::new(|| {
    let mut fonts = usvg::fontdb::Database::new();
    fonts.load_font_data(FONT.to_vec());
    fonts.set_sans_serif_family("Inter");
    usvg::Options { font_family: "Inter".into(), fontdb: Arc::new(fonts), ..usvg::Options::default() }
});

impl Drawing {
    /// Draws `figure`, `millimetres` wide.
    ///
    /// # Errors
    /// A drawing that can't be read back.
    pub fn new(figure: &Figure<'_>, millimetres: f64) -> Result<Drawing, Error> {
        let millimetres = millimetres.clamp(WIDTH_MIN_MM, WIDTH_MAX_MM);
        let name = figure.name().to_owned();
        let parse = |svg: &str| {
            usvg::Tree::from_str(svg, &OPTIONS)
                .map_err(|error| Error::Drawing { name: name.clone(), why: error.to_string() })
        };
        let svg = figure.svg(millimetres, [0.0; 4]);
        let tree = parse(&svg)?;
        let margins = beyond(&tree);
        if margins == [0.0; 4] {
            return Ok(Drawing { name, svg, tree });
        }
        let svg = figure.svg(millimetres, margins);
        let tree = parse(&svg)?;
        Ok(Drawing { name, svg, tree })
    }

    /// Width and height in millimetres.
    pub fn size_mm(&self) -> (f64, f64) {
        (mm(self.tree.size().width()), mm(self.tree.size().height()))
    }

    /// The bytes of the file.
    ///
    /// # Errors
    /// A drawing that can't be encoded.
    pub fn encode(&self, format: Format) -> Result<Vec<u8>, Error> {
        match format {
            Format::Svg => Ok(self.svg().into_bytes()),
            Format::Pdf => self.pdf(),
            Format::Png => self.png(),
        }
    }

    /// The document, with the font in it.
    fn svg(&self) -> String {
        let face = format!(
            "<style>\n@font-face{{font-family:Inter;src:url(data:font/woff2;base64,{}) format(\"woff2\")}}\n",
            STANDARD.encode(WEB_FONT)
        );
        self.svg.replacen("<style>\n", &face, 1)
    }

    fn pdf(&self) -> Result<Vec<u8>, Error> {
        // A unit of the tree is a CSS pixel.
        let page = svg2pdf::PageOptions { dpi: 96.0 };
        let mut bytes = svg2pdf::to_pdf(&self.tree, svg2pdf::ConversionOptions::default(), page)
            .map_err(|error| self.failed(&error.to_string()))?;
        sort_resources(&mut bytes);
        Ok(bytes)
    }

    fn png(&self) -> Result<Vec<u8>, Error> {
        let scale = DPI / 96.0;
        let pixels = |length: f32| (length * scale).ceil().max(1.0) as u32;
        let size = self.tree.size();
        let (width, height) = (pixels(size.width()), pixels(size.height()));
        let mut canvas = tiny_skia::Pixmap::new(width, height).ok_or_else(|| self.failed("too large for pixels"))?;
        canvas.fill(tiny_skia::Color::WHITE);
        resvg::render(&self.tree, tiny_skia::Transform::from_scale(scale, scale), &mut canvas.as_mut());
        let mut bytes = canvas.encode_png().map_err(|error| self.failed(&error.to_string()))?;
        bytes.splice(PNG_HEAD..PNG_HEAD, RESOLUTION);
        Ok(bytes)
    }

    fn failed(&self, why: &str) -> Error {
        Error::Drawing { name: self.name.clone(), why: why.to_owned() }
    }
}

/// Sorts the names in the lists of resources of a PDF, whose order differs each time. All names stay, so that nothing
/// else moves.
fn sort_resources(pdf: &mut [u8]) {
    for list in [&b"/XObject <<\n"[..], b"/Pattern <<\n", b"/ExtGState <<\n", b"/Shading <<\n", b"/Font <<\n"] {
        let mut from = 0;
        while let Some(at) = find(&pdf[from..], list) {
            let start = from + at + list.len();
            let Some(length) = find(&pdf[start..], b">>")
                .and_then(|end| pdf[start..start + end].iter().rposition(|&byte| byte == b'\n').map(|last| last + 1))
            else {
                break;
            };
            from = start + length;
            let mut lines: Vec<Vec<u8>> =
                pdf[start..from].split_inclusive(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();
            let is_entry = |line: &Vec<u8>| line.trim_ascii().starts_with(b"/") && line.ends_with(b" R\n");
            if lines.iter().all(is_entry) {
                lines.sort();
                pdf[start..from].copy_from_slice(&lines.concat());
            }
        }
    }
}

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

/// The boxes of all that is drawn, of words with the room between their lines.
fn reach(group: &usvg::Group, see: &mut impl FnMut(usvg::Rect)) {
    for node in group.children() {
        match node {
            usvg::Node::Group(group) => reach(group, see),
            node => {
                see(node.abs_bounding_box());
                see(node.abs_stroke_bounding_box());
            }
        }
    }
}

/// Millimetres of CSS pixels, 96 of which are an inch.
fn mm(pixels: f32) -> f64 {
    f64::from(pixels) / 96.0 * 25.4
}

/// How far what is drawn reaches beyond the edges of the document, in millimetres: left, top, right, bottom.
fn beyond(tree: &usvg::Tree) -> [f64; 4] {
    let size = tree.size();
    let mut most = [0.0f32; 4];
    reach(tree.root(), &mut |drawn| {
        let sides = [-drawn.left(), -drawn.top(), drawn.right() - size.width(), drawn.bottom() - size.height()];
        most.iter_mut().zip(sides).for_each(|(most, side)| *most = most.max(side));
    });
    most.map(|pixels| {
        let room = mm(pixels);
        if room > 0.02 { room + EDGE_MM } else { 0.0 }
    })
}
