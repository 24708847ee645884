//! The program of a run: whether a library can be preloaded into it, and where that library is.

use crate::failure::Failure;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

pub const SHIM: &str = "libtidewater_shim.so";
/// Scripts whose interpreter is a script, at most (execve(2)).
const SCRIPTS_MAX: usize = 5;
/// Bytes of a script's first line that the system reads.
const LINE_MAX: usize = 256;

/// The library that is preloaded.
///
/// # Errors
/// When it is nowhere.
pub fn shim() -> Result<PathBuf, Failure> {
    let mut places = Vec::new();
    if let Some(given) = env::var_os("TIDEWATER_SHIM") {
        places.push(PathBuf::from(given));
    } else if let Ok(binary) = env::current_exe().and_then(|binary| binary.canonicalize())
        && let Some(folder) = binary.parent()
    {
        places.push(folder.join(SHIM));
        places.push(folder.join("../lib/tidewater").join(SHIM));
    }
    let found = places.iter().find_map(|place| place.canonicalize().ok().filter(|place| place.is_file()));
    let found = found.ok_or_else(|| {
        let list: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
        Failure::usage(format_args!("the preload library is not at {}", list.join(" nor at ")))
            .help(format_args!("put {SHIM} next to the binary, or set TIDEWATER_SHIM to its path"))
    })?;
    // The loader splits its list at these.
    if found.as_os_str().as_bytes().iter().any(|byte| matches!(byte, b' ' | b':')) {
        return Err(Failure::usage(format_args!(
            "{} has a space or a colon in its path and cannot be preloaded",
            found.display()
        ))
        .help("move it, and set TIDEWATER_SHIM to its new path"));
    }
    Ok(found)
}

/// The file of a command, as the shell finds it.
///
/// # Errors
/// When there is none that may be executed.
pub fn find(command: &OsStr) -> Result<PathBuf, Failure> {
    let executable =
        |path: &Path| path.metadata().is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0);
    if command.as_bytes().contains(&b'/') {
        let path = PathBuf::from(command);
        return match executable(&path) {
            true => Ok(path),
            false => Err(Failure::usage(format_args!("{}: not an executable program", path.display()))),
        };
    }
    let folders = env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/local/bin:/usr/bin:/bin"));
    env::split_paths(&folders)
        .map(|folder| folder.join(command))
        .find(|path| executable(path))
        .ok_or_else(|| Failure::usage(format_args!("{}: no such program in PATH", command.display())))
}

/// Whether a library can be preloaded into a program.
///
/// # Errors
/// Why not, in words.
pub fn check(path: &Path) -> Result<(), Failure> {
    let mut path = path.to_owned();
    for _ in 0..SCRIPTS_MAX {
        let failed =
            |error: io::Error| Failure::usage(format_args!("{}: {}", path.display(), crate::failure::reason(&error)));
        let about = path.metadata().map_err(failed)?;
        if about.permissions().mode() & 0o6000 != 0 {
            return Err(Failure::usage(format_args!(
                "{} is set-user-ID: no library can be preloaded into it",
                path.display()
            ))
            .help("run a copy without the set-user-ID bit"));
        }
        let file = match File::open(&path) {
            Ok(file) => file,
            // It may be executed and not read: the loader will see.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(()),
            Err(error) => return Err(failed(error)),
        };
        let mut head = Vec::new();
        (&file).take(LINE_MAX as u64).read_to_end(&mut head).map_err(failed)?;
        if let Some(line) = head.strip_prefix(b"#!") {
            let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii();
            let interpreter = line.split(|byte| byte.is_ascii_whitespace()).next().unwrap_or_default();
            path = PathBuf::from(OsStr::from_bytes(interpreter));
            continue;
        }
        return match loader(&file) {
            Ok(Loader::Gnu) => Ok(()),
            Ok(Loader::None) => Err(Failure::usage(format_args!(
                "{} is statically linked: no library can be preloaded, and its writes would bypass the log",
                path.display()
            ))
            .help("use a dynamically linked build of it")),
            Ok(Loader::Other(name)) => Err(Failure::usage(format_args!(
                "{} is loaded by {name}, not by the GNU C library: its writes would bypass the log",
                path.display()
            ))
            .help("use a build for glibc")),
            // A script without a first line, or what the system will refuse by itself.
            Err(_) => Ok(()),
        };
    }
    Ok(())
}

/// Whether a program is one of Go, whose code makes its system calls by itself: its linker leaves a section of this
/// name.
pub fn is_go(path: &Path) -> bool {
    File::open(path).and_then(|file| has_section(&file, b".go.buildinfo")).unwrap_or(false)
}

/// Whether an ELF file (elf(5)) of 64 bits has a section of a name.
fn has_section(file: &File, name: &[u8]) -> io::Result<bool> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let mut head = [0; 64];
    file.read_exact_at(&mut head, 0)?;
    if head[..6] != *b"\x7fELF\x02\x01" {
        return Ok(false);
    }
    let (at, size, count, names) = (word(&head, 40, 8), word(&head, 58, 2), word(&head, 60, 2), word(&head, 62, 2));
    let header = |number: u64| {
        let mut header = [0; 64];
        let place = number.checked_mul(size).and_then(|more| at.checked_add(more)).ok_or_else(invalid)?;
        file.read_exact_at(&mut header, place).map(|()| header)
    };
    let names = word(&header(names)?, 24, 8);
    for number in 0..count {
        let place = names.checked_add(word(&header(number)?, 0, 4)).ok_or_else(invalid)?;
        let mut found = vec![0; name.len() + 1];
        // The last name may be shorter than what is looked for.
        if file.read_exact_at(&mut found, place).is_ok() && found.strip_suffix(b"\0") == Some(name) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A number of an ELF file, little-endian.
fn word(bytes: &[u8], at: usize, len: usize) -> u64 {
    bytes[at..at + len].iter().rev().fold(0u64, |word, byte| word << 8 | u64::from(*byte))
}

/// Who loads a program.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Loader {
    Gnu,
    Other(String),
    None,
}

/// The program headers of an ELF file (elf(5)), as far as they tell its loader.
fn loader(file: &File) -> io::Result<Loader> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let mut head = [0; 64];
    file.read_exact_at(&mut head, 0)?;
    if head[..4] != *b"\x7fELF" {
        return Err(invalid());
    }
    // 64 bits, little-endian: what this binary is.
    if (head[4], head[5]) != (2, 1) {
        return Ok(Loader::Other("a loader for another architecture".into()));
    }
    let (at, size, count) = (word(&head, 32, 8), word(&head, 54, 2), word(&head, 56, 2));
    for i in 0..count {
        let mut entry = [0; 56];
        let place = i.checked_mul(size).and_then(|more| at.checked_add(more)).ok_or_else(invalid)?;
        file.read_exact_at(&mut entry, place)?;
        const INTERPRETER: u64 = 3;
        if word(&entry, 0, 4) == INTERPRETER {
            let mut name = vec![0; word(&entry, 32, 8).min(4096) as usize];
            file.read_exact_at(&mut name, word(&entry, 8, 8))?;
            let name = String::from_utf8_lossy(name.strip_suffix(b"\0").unwrap_or(&name)).into_owned();
            return Ok(if name.contains("/ld-linux") { Loader::Gnu } else { Loader::Other(name) });
        }
    }
    Ok(Loader::None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_loads_a_program_is_read_from_it() {
        let own = File::open(env::current_exe().unwrap()).unwrap();
        assert_eq!(loader(&own).unwrap(), Loader::Gnu);
        let folder = tempfile::tempdir().unwrap();
        let make = |name: &str, bytes: &[u8], mode: u32| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        let mut head = [0u8; 64];
        head[..6].copy_from_slice(b"\x7fELF\x02\x01");
        let fixed = make("static", &head, 0o755);
        let said = check(&fixed).unwrap_err().message;
        assert!(said.contains("statically linked"), "{said}");
        // A section table of two entries behind the header, and their names behind that.
        let mut go = head.to_vec();
        (go[40], go[58], go[60], go[62]) = (64, 64, 2, 0);
        let mut table = [0u8; 128];
        (table[24], table[64]) = (192, 1);
        go.extend(table);
        go.extend(b"\0.go.buildinfo\0");
        assert!(is_go(&make("go", &go, 0o755)) && !is_go(&fixed));
        let script = make("script", format!("#! {} -x\n", fixed.display()).as_bytes(), 0o755);
        assert!(check(&script).unwrap_err().message.contains("statically linked"));
        let other = make("setuid", &head, 0o4755);
        assert!(check(&other).unwrap_err().message.contains("set-user-ID"));
        assert!(check(&make("plain", b"echo hello", 0o755)).is_ok());
        let endless = folder.path().join("endless");
        std::fs::write(&endless, format!("#!{}\n", endless.display())).unwrap();
        assert!(check(&endless).is_ok(), "the system refuses it");
        // Nothing that a file says makes it panic.
        for at in 0..64 {
            for value in [0, 1, 0x7f, 0xff] {
                let mut bytes = head;
                (bytes[at], bytes[56]) = (value, 2);
                let path = make("noise", &bytes, 0o644);
                assert!(!is_go(&path));
                let _ = loader(&File::open(path).unwrap());
            }
        }
    }
}
