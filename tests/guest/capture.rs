//! A guest's commands as decoded by Wireshark: `tidewater serve --commands`.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::job::Tally;

/// The check's name.
const NAME: &str = "wireshark-decodes-the-capture";

/// Wireshark 4.0 has a field that it never registers, and stops there: in the completion of Get Features for
/// arbitration, whatever that holds. Jobs ask for each feature.
const DISSECTOR_BUG: &str = "_ws.expert.message contains \"Unregistered hf\"";

/// Packets of a capture that a filter lets pass.
fn packets(capture: &Path, filter: &str) -> Result<usize, String> {
    let mut command = Command::new("tshark");
    command.arg("-n").arg("-r").arg(capture).args(["-Y", filter, "-T", "fields", "-e", "frame.number"]);
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("tshark: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().count())
}

/// Reads a capture with `tshark`, where that is installed.
pub fn judge(capture: &Path) -> Tally {
    let mut tally = Tally::default();
    let is_there = Command::new("tshark").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !is_there {
        tally.skipped.push((NAME.to_owned(), "no tshark (apt-get install tshark)".to_owned()));
        return tally;
    }
    let judged = || -> Result<String, String> {
        let count = |filter: &str| packets(capture, filter);
        let (all, commands, completions) =
            (count("frame")?, count("nvme-tcp.type == 4")?, count("nvme-tcp.type == 5")?);
        let malformed = count(&format!("_ws.malformed && !({DISSECTOR_BUG})"))?;
        let (bugs, lost) = (count(DISSECTOR_BUG)?, count("tcp.analysis.flags")?);
        let said = format!(
            "tshark: {all} packets, {commands} commands, {completions} completions, malformed {malformed}, TCP out of \
             order {lost}, bugs of the dissector {bugs}"
        );
        let is_good = malformed == 0 && lost == 0 && commands > 100 && completions > 100;
        if is_good { Ok(said) } else { Err(said) }
    };
    match judged() {
        Ok(said) => {
            tally.ok.push(NAME.to_owned());
            tally.notes.push(said);
        }
        Err(why) => tally.not_ok.push((NAME.to_owned(), why)),
    }
    tally
}
