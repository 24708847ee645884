//! A check of the witness against known writes, before a database is judged by it.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::process::Command;

use crate::campaign::Campaign;

/// Syncs some of what it writes, by every call that the witness knows.
const WRITER: &str = r#"
import os, sys
folder = sys.argv[1]
def new(name, flags=os.O_RDWR):
    return os.open(os.path.join(folder, name), flags | os.O_CREAT, 0o600)
# Synced, then changed: what was synced comes back.
a = new("changed"); os.write(a, b"first"); os.fsync(a); os.pwrite(a, b"later", 0)
# Grown and cut after the sync.
b = new("grown"); os.write(b, b"x" * 100000); os.fdatasync(b); os.write(b, b"y" * 100000)
c = new("cut"); os.write(c, b"z" * 100000); os.fdatasync(c); os.ftruncate(c, 10)
# Never synced.
d = new("never"); os.write(d, b"nothing")
# Write-only, appended to, synced by another process.
e = new("other", os.O_WRONLY | os.O_APPEND); os.write(e, b"one"); os.write(e, b"two")
if os.fork() == 0:
    os.fdatasync(e); os._exit(0)
os.wait(); os.write(e, b"three")
# Each write synced.
f = new("dsync", os.O_RDWR | os.O_DSYNC); os.write(f, b"kept"); os.pwrite(f, b"KE", 0)
# One that is replaced: a new file under an old name, which was never synced.
g = new("replaced"); os.write(g, b"old"); os.fsync(g); os.close(g)
h = new("replaced.new"); os.write(h, b"new")
os.rename(os.path.join(folder, "replaced.new"), os.path.join(folder, "replaced"))
# A sync keeps record locks: closing another descriptor of the file would drop them.
import fcntl
k = new("locked"); os.write(k, b"locked"); fcntl.lockf(k, fcntl.LOCK_EX); os.fsync(k)
if os.fork() == 0:
    try:
        fcntl.lockf(new("locked"), fcntl.LOCK_EX | fcntl.LOCK_NB); os._exit(1)
    except OSError:
        os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"#;

/// Runs the writer under the witness, loses the power, and looks.
///
/// # Errors
/// The differences.
pub fn check(campaign: &Campaign) -> Result<(), String> {
    let folder = campaign.scratch().join("witnessed");
    let (data, shadows) = (folder.join("data"), folder.join("shadows"));
    for one in [&data, &shadows] {
        std::fs::create_dir_all(one).map_err(|error| error.to_string())?;
    }
    let before = data.join("before");
    std::fs::write(&before, "there before").map_err(|error| error.to_string())?;
    campaign.witness().keep(&shadows, &[&data])?;
    let file = OpenOptions::new().write(true).open(&before).map_err(|error| error.to_string())?;
    file.write_all_at(b"HERE", 12).map_err(|error| error.to_string())?;
    drop(file);

    let mut writer = Command::new("python3");
    writer.args(["-c", WRITER]).arg(&data);
    campaign.witness().attach(&mut writer, &shadows);
    let output = writer.output().map_err(|error| format!("python3: {error}"))?;
    if !output.status.success() {
        return Err(format!("its writer failed: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let reset = campaign.witness().reset(&shadows, &[&data])?;
    let x = "x".repeat(100_000);
    let z = "z".repeat(100_000);
    let expected = [
        ("before", "there before"),
        ("changed", "first"),
        ("grown", &x),
        ("cut", &z),
        ("never", ""),
        ("other", "onetwo"),
        ("dsync", "KEpt"),
        ("replaced", ""),
        ("locked", "locked"),
    ];
    for (name, text) in expected {
        let found = std::fs::read_to_string(data.join(name)).map_err(|error| format!("{name}: {error}"))?;
        if found != text {
            let begin = |text: &str| text.chars().take(20).collect::<String>();
            return Err(format!(
                "{name} holds {} bytes '{}', not {} bytes '{}'",
                found.len(),
                begin(&found),
                text.len(),
                begin(text)
            ));
        }
    }
    if (reset.emptied, reset.as_synced + reset.set_back) != (2, 7) {
        return Err(format!("{reset:?}"));
    }
    Ok(())
}
