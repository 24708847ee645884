//! Values of keys that are more than a number.

use crate::workload::Op;

use super::spec::{Access, BlockSizes, Distribution, Order, Zone};
use super::units;

/// `rw`: what, in which order, and what follows a colon: bytes that a sequential thread passes over between two
/// requests, or requests that a random one makes in sequence from each place.
pub(super) fn access(value: &str) -> Result<(Access, Order), String> {
    let (name, more) = value.split_once(':').map_or((value, None), |(name, more)| (name, Some(more)));
    let (access, random) = match name {
        "read" => (Access::Read, false),
        "write" => (Access::Write, false),
        "trim" => (Access::Trim, false),
        "rw" | "readwrite" => (Access::Mixed, false),
        "trimwrite" => (Access::TrimWrite, false),
        "randread" => (Access::Read, true),
        "randwrite" => (Access::Write, true),
        "randtrim" => (Access::Trim, true),
        "randrw" => (Access::Mixed, true),
        "randtrimwrite" => (Access::TrimWrite, true),
        _ => {
            return Err(format!(
                "\"{value}\" is not one of read, write, randread, randwrite, rw, readwrite, randrw, trim, randtrim, \
                 trimwrite, randtrimwrite"
            ));
        }
    };
    let order = match (random, more) {
        (false, None) => Order::Sequential { hole: 0 },
        (true, None) => Order::Random { run: 1 },
        (true, Some(run)) => Order::Random { run: units::number(run, 1, 1 << 32)? },
        (false, Some(hole)) if hole.starts_with('-') => {
            return Err(format!("\"{value}\": a thread does not go backwards here; use a random order"));
        }
        (false, Some(hole)) => {
            let bytes = units::bytes(hole)?;
            if bytes > 1 << 50 {
                return Err(format!("\"{hole}\" passes 1p"));
            }
            Order::Sequential { hole: bytes }
        }
    };
    Ok((access, order))
}

/// `random_distribution`, with fio's defaults for what is left out.
pub(super) fn distribution(value: &str) -> Result<Distribution, String> {
    let (name, parameter) = value.split_once(':').unwrap_or((value, ""));
    let number = |default: f64, good: fn(f64) -> bool, what: &str| match parameter {
        "" => Ok(default),
        text if text.contains(':') => {
            Err(format!("\"{value}\": a center is not supported; popular blocks lie anywhere"))
        }
        text => match text.parse::<f64>() {
            Ok(number) if good(number) => Ok(number),
            _ => Err(format!("\"{value}\": {what}")),
        },
    };
    match name {
        "random" if parameter.is_empty() => Ok(Distribution::Uniform),
        "zipf" => {
            let what = "the exponent of zipf has to be above 0 and at most 10";
            number(1.1, |theta| theta > 0.0 && theta <= 10.0, what).map(Distribution::Zipf)
        }
        "pareto" => {
            let what = "the power of pareto has to be above 0 and below 1";
            number(0.2, |power| power > 0.0 && power < 1.0, what).map(Distribution::Pareto)
        }
        "normal" => {
            let what = "the deviation of normal is a percentage of 0 to 100";
            number(0.0, |deviation| (0.0..=100.0).contains(&deviation), what).map(Distribution::Normal)
        }
        "zoned" | "zoned_abs" => {
            let zones = three(parameter, &Default::default(), |part| zones(part, name == "zoned_abs"))?;
            Ok(Distribution::Zoned(zones))
        }
        _ => Err(format!(
            "\"{value}\" is not one of random, zipf:EXPONENT, pareto:POWER, normal:DEVIATION, zoned:ACCESS/SIZE:..., \
             zoned_abs:ACCESS/SIZE:..."
        )),
    }
}

/// `60/10:30/20:10/70`: shares of requests and of the region; those left out share what remains.
fn zones(part: &str, absolute: bool) -> Result<Vec<Zone>, String> {
    let percent = |text: &str| match text.trim() {
        "" => Ok(None),
        text => match text.trim_end_matches('%').parse::<f64>() {
            Ok(share) if (0.0..=100.0).contains(&share) => Ok(Some(share)),
            _ => Err(format!("\"{text}\" is not a percentage of 0 to 100")),
        },
    };
    let (mut shares, mut sizes) = (Vec::new(), Vec::new());
    let mut bytes = Vec::new();
    for entry in part.split(':') {
        let (share, size) = entry.split_once('/').unwrap_or((entry, ""));
        shares.push(percent(share)?);
        match (absolute, size.trim()) {
            (true, "") => bytes.push(None),
            (true, size) => bytes.push(Some(units::bytes(size)?)),
            (false, size) => sizes.push(percent(size)?),
        }
    }
    let shares = filled(part, "shares of requests", &shares)?;
    if !absolute {
        let sizes = filled(part, "shares of the region", &sizes)?;
        return Ok(shares.into_iter().zip(sizes).map(|(share, size)| Zone::Percent { share, size }).collect());
    }
    Ok(shares.into_iter().zip(bytes).map(|(share, size)| Zone::Bytes { share, size }).collect())
}

/// Percentages that add up to 100: those left out share what remains.
fn filled(part: &str, what: &str, given: &[Option<f64>]) -> Result<Vec<f64>, String> {
    let sum: f64 = given.iter().flatten().sum();
    let open = given.iter().filter(|share| share.is_none()).count();
    if sum > 100.0 + 1e-9 || (open == 0 && (sum - 100.0).abs() > 1e-9) {
        return Err(format!("the {what} in \"{part}\" add up to {sum}, not 100"));
    }
    let rest = (100.0 - sum).max(0.0) / open.max(1) as f64;
    Ok(given.iter().map(|share| share.unwrap_or(rest)).collect())
}

/// Values for reads, writes and trims from one to three, as fio fills them: the last one given serves the rest, and an
/// empty one leaves what was there.
pub(super) fn three<T: Clone>(
    value: &str,
    before: &[T; 3],
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<[T; 3], String> {
    let parts: Vec<&str> = value.split(',').map(str::trim).collect();
    if parts.len() > 3 {
        return Err(format!("\"{value}\" has more than three parts (reads, writes, trims)"));
    }
    // Nothing at all is no value.
    let part = |at: usize| match parts.get(at).or(parts.last()) {
        Some(&"") if parts.len() > 1 => Ok(before[at].clone()),
        part => parse(part.copied().unwrap_or_default()),
    };
    Ok([part(0)?, part(1)?, part(2)?])
}

/// Sizes of one request, up to 1 GiB. One that is no multiple of a sector touches whole sectors, as any request does.
pub(super) fn block_size(text: &str) -> Result<u64, String> {
    let bytes = units::bytes(text)?;
    if bytes == 0 || bytes > 1 << 30 {
        return Err(format!("\"{text}\" is not a size of 1 byte to 1g"));
    }
    Ok(bytes)
}

pub(super) fn block_sizes(value: &str, before: &[BlockSizes; 3]) -> Result<[BlockSizes; 3], String> {
    three(value, before, |part| Ok(BlockSizes(vec![(block_size(part)?, 100.0)])))
}

/// The most different sizes of a range.
const RANGE_MAX: u64 = 256;

/// `4k-64k`: each multiple of the least up to the largest, as often as the others.
pub(super) fn block_range(value: &str, before: &[BlockSizes; 3]) -> Result<[BlockSizes; 3], String> {
    three(value, before, |part| {
        let (low, high) = part.split_once(['-', ':']).unwrap_or((part, part));
        let (low, high) = (block_size(low.trim())?, block_size(high.trim())?);
        let count = high / low;
        if count == 0 || count > RANGE_MAX {
            return Err(format!("\"{part}\" is not a range of 1 to {RANGE_MAX} multiples of its least size"));
        }
        Ok(BlockSizes((1..=count).map(|times| (low * times, 100.0 / count as f64)).collect()))
    })
}

/// `4k/60:64k/40`; percentages that are left out share what remains.
pub(super) fn block_split(value: &str, before: &[BlockSizes; 3]) -> Result<[BlockSizes; 3], String> {
    three(value, before, |part| {
        let (mut sizes, mut shares) = (Vec::new(), Vec::new());
        for entry in part.split(':') {
            let (size, share) = entry.split_once('/').unwrap_or((entry, ""));
            shares.push(match share.trim() {
                "" => None,
                text => match text.parse::<f64>() {
                    Ok(share) if (0.0..=100.0).contains(&share) => Some(share),
                    _ => return Err(format!("\"{text}\" is not a percentage of 0 to 100")),
                },
            });
            sizes.push(block_size(size)?);
        }
        let shares = filled(part, "percentages", &shares)?;
        Ok(BlockSizes(sizes.into_iter().zip(shares).filter(|(_, share)| *share > 0.0).collect()))
    })
}

/// `write_mode`: what a write asks the drive for.
pub(super) fn write_mode(value: &str) -> Result<Op, String> {
    match value {
        "write" => Ok(Op::Write),
        "zeroes" => Ok(Op::WriteZeroes),
        "verify" => Ok(Op::Verify),
        "uncor" | "zone_append" => Err(format!("\"{value}\" is not supported: the drive has no such command")),
        mixed if mixed.contains(['/', ':']) => {
            Err(format!("\"{value}\" is not supported: give each kind of write a section of its own"))
        }
        _ => Err(format!("\"{value}\" is not one of write, zeroes, verify")),
    }
}

/// `random_generator`: whether it visits each block once even without a map, as fio's `lfsr` does.
pub(super) fn visits_once(value: &str) -> Result<bool, String> {
    match value {
        "tausworthe" | "tausworthe64" => Ok(false),
        "lfsr" => Ok(true),
        _ => Err(format!("\"{value}\" is not one of tausworthe, lfsr, tausworthe64")),
    }
}

/// `verify`: whether what was written is read at the end.
pub(super) fn verify(value: &str) -> Result<bool, String> {
    const METHODS: &str = "md5 crc64 crc32c crc32c-intel crc32 crc16 crc7 xxhash sha512 sha256 sha1 sha3-224 sha3-256 \
                           sha3-384 sha3-512 meta pattern pattern_hdr null";
    match value {
        "0" | "none" => Ok(false),
        method if METHODS.split_whitespace().any(|known| known == method) => Ok(true),
        _ => Err(format!("\"{value}\" is not one of none, {}", METHODS.replace(' ', ", "))),
    }
}

/// Puts what the environment holds in the place of `${NAME}`.
pub(super) fn substituted(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let behind = &rest[at + 1..];
        if let Some((name, after)) = behind.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
            out += &variable(name).ok_or_else(|| format!("\"${{{name}}}\": the environment has no {name}; set it"))?;
            rest = after;
            continue;
        }
        if let Some(word) = ["pagesize", "mb_memory", "ncpus"].into_iter().find(|word| behind.starts_with(word)) {
            return Err(format!("\"${word}\" is a figure of fio's machine; write the number"));
        }
        out.push('$');
        rest = behind;
    }
    Ok(out + rest)
}
