//! Small traces that are compiled in, so that an installed binary has something to replay. All of them are synthesized
//! by [`crate::workload::Synth`] with fixed seeds; `cargo test` compares them with what it makes, and writes them anew
//! with `TIDEWATER_BLESS=1` in the environment.

use super::Format;

macro_rules! sample {
    ($name:literal) => {
        ($name, include_bytes!(concat!("../../traces/", $name)) as &[u8])
    };
    ($name:literal, $format:ident) => {
        ($name, Format::$format, include_bytes!(concat!("../../traces/", $name)) as &[u8])
    };
}

/// The trace that the demonstration replays: 20,000 requests of a mixed transaction processing load, SPC, zstd.
pub const DEMO: &str = "oltp.spc.zst";

/// Every sample by name: the demonstration, one for each format, and some that have to be refused.
pub const SAMPLES: &[(&str, &[u8])] = &[
    sample!("oltp.spc.zst"),
    sample!("sample.spc"),
    sample!("sample.msr.csv"),
    sample!("sample.etw.csv"),
    sample!("sample.disksim"),
    sample!("sample.mqsim"),
    sample!("sample.mqsim64"),
    sample!("sample.ssdsim"),
    sample!("sample.flashsim"),
    sample!("sample.replayer"),
    sample!("sample.flashnet.csv"),
    sample!("sample.wiscsee"),
    sample!("sample.blkparse"),
    sample!("sample.fio2"),
    sample!("sample.fio3"),
    sample!("sample.systor17.csv"),
    sample!("sample.tencent.csv"),
    sample!("sample.alibaba.csv"),
    sample!("sample.biosnoop"),
    sample!("sample.ftrace"),
    sample!("sample.vscsi"),
    sample!("sample.msr.csv.gz"),
    sample!("bad-line.spc"),
    sample!("empty.spc"),
    sample!("noise.bin"),
];

/// One small sample of each format.
pub const FORMATS: &[(&str, Format, &[u8])] = &[
    sample!("sample.spc", Spc),
    sample!("sample.msr.csv", Msr),
    sample!("sample.etw.csv", Etw),
    sample!("sample.disksim", Disksim),
    sample!("sample.mqsim", Mqsim),
    sample!("sample.mqsim64", Mqsim64),
    sample!("sample.ssdsim", Ssdsim),
    sample!("sample.flashsim", Flashsim),
    sample!("sample.replayer", Replayer),
    sample!("sample.flashnet.csv", Flashnet),
    sample!("sample.wiscsee", Wiscsee),
    sample!("sample.blkparse", Blkparse),
    sample!("sample.fio2", Fio),
    sample!("sample.fio3", Fio),
    sample!("sample.systor17.csv", Systor17),
    sample!("sample.tencent.csv", Tencent),
    sample!("sample.alibaba.csv", Alibaba),
    sample!("sample.biosnoop", Biosnoop),
    sample!("sample.ftrace", Ftrace),
    sample!("sample.vscsi", Vscsi),
];

/// The bytes of the sample `name`; `sample` alone is the demonstration.
pub fn find(name: &str) -> Option<&'static [u8]> {
    let name = if name == "sample" { DEMO } else { name };
    SAMPLES.iter().find(|(sample, _)| *sample == name).map(|(_, bytes)| *bytes)
}

#[cfg(test)]
#[path = "samples_tests.rs"]
mod tests;
