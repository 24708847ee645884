//! A PCI function of the machine that this runs on: sysfs lets its BAR be mapped, and the kernel's NVMe driver passes
//! commands on.

mod system;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use tidewater_wire::nvme::Sqe;

use crate::{BarAccess, Completion, Error, Queue, Transport};
use system::{Bar, fence, pass};

/// Where the system shows its PCI functions.
const FUNCTIONS: &str = "/sys/bus/pci/devices";
/// How long a command may take, beyond which the kernel aborts it, in milliseconds.
const TIME_MS: u32 = 30_000;

/// A function with its driver.
pub struct Function {
    /// Where sysfs shows the driver's controller.
    shown: PathBuf,
    controller: File,
    /// Files of namespaces that commands went to.
    namespaces: Vec<(u32, File)>,
    bar: MappedBar,
}

/// BAR2 in both ways that it can be mapped.
struct MappedBar {
    /// For loads and registers: nothing is cached or combined.
    plain: Bar,
    /// For stores of data.
    combining: Option<Bar>,
}

fn failed(path: &Path) -> impl Fn(io::Error) -> Error {
    let path = path.to_owned();
    move |error| Error::File { path: path.clone(), error }
}

/// The whole address of a function: `01:00.0` is in domain 0.
fn whole(address: &str) -> Result<String, Error> {
    let plain = address.chars().all(|c| c.is_ascii_hexdigit() || matches!(c, ':' | '.'));
    let whole = match address.matches(':').count() {
        1 => format!("0000:{address}"),
        _ => address.to_owned(),
    };
    let parts: Vec<usize> = whole.split([':', '.']).map(str::len).collect();
    // Domains have four digits, or more where a machine has many.
    let shaped = matches!(parts[..], [4..=8, 2, 2, 1]) && whole.matches(':').count() == 2;
    if plain && shaped { Ok(whole.to_ascii_lowercase()) } else { Err(Error::Target(format!("pci:{address}"))) }
}

/// Names in a folder that begin so.
fn names(folder: &Path, prefix: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| name.starts_with(prefix)).collect();
    names.sort();
    names
}

/// The device file of a namespace that sysfs shows below its controller: `nvme0n1`, or `nvme0c2n1`, a path to
/// `nvme0n1`.
fn device_file(shown: &str) -> Option<PathBuf> {
    let rest = shown.strip_prefix("nvme")?;
    let (instance, namespace) = rest.split_once('n')?;
    let instance = instance.split('c').next()?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (digits(instance) && digits(namespace)).then(|| PathBuf::from(format!("/dev/nvme{instance}n{namespace}")))
}

impl Function {
    /// Opens the function at an address, as `lspci` names it.
    ///
    /// # Errors
    /// `Target`: it is no address. `Lacking`: there is no such function, or the kernel does not let it be used. `File`.
    pub fn open(address: &str) -> Result<Function, Error> {
        let address = whole(address)?;
        let folder = Path::new(FUNCTIONS).join(&address);
        if !folder.is_dir() {
            return Err(Error::Lacking(format!("no PCI function {address}; `lspci` lists them")));
        }
        let name = names(&folder.join("nvme"), "nvme").into_iter().next().ok_or_else(|| {
            Error::Lacking(format!("the kernel's NVMe driver is not bound to {address}: commands go through it"))
        })?;
        let file = PathBuf::from("/dev").join(&name);
        let controller = File::open(&file).map_err(failed(&file))?;
        let bar = MappedBar::open(&folder)?;
        Ok(Function { shown: folder.join("nvme").join(name), controller, namespaces: Vec::new(), bar })
    }

    /// The file of a namespace; of the first one for commands that name none.
    fn namespace(&mut self, nsid: u32) -> Result<usize, Error> {
        if let Some(known) = self.namespaces.iter().position(|(known, _)| *known == nsid || nsid == 0) {
            return Ok(known);
        }
        for name in names(&self.shown, "nvme") {
            let number = self.shown.join(&name).join("nsid");
            let Some(file) = device_file(&name) else { continue };
            let found = fs::read_to_string(&number).ok().and_then(|text| text.trim().parse::<u32>().ok());
            if found.is_some_and(|found| found == nsid || nsid == 0) {
                let opened = File::open(&file).map_err(failed(&file))?;
                self.namespaces.push((found.unwrap_or(nsid), opened));
                return Ok(self.namespaces.len() - 1);
            }
        }
        let which = if nsid == 0 { "no namespace".to_owned() } else { format!("no namespace {nsid}") };
        Err(Error::Lacking(format!("the driver exposes {which} of this function, and I/O commands need exactly one")))
    }
}

impl MappedBar {
    fn open(folder: &Path) -> Result<MappedBar, Error> {
        // The combining mapping first: where the kernel gives one place one memory type only, that of the first one
        // stays.
        let combining = folder.join("resource2_wc");
        let combining = if combining.exists() { Some(map(&combining)?) } else { None };
        let plain = map(&folder.join("resource2"))?;
        if let Some(other) = combining.as_ref().filter(|other| other.len() != plain.len()) {
            return Err(Error::Malformed(format!("BAR2 has {} bytes, or {}", plain.len(), other.len())));
        }
        Ok(MappedBar { plain, combining })
    }

    fn check(&self, offset: u64, len: u64) -> Result<(), Error> {
        let whole = self.plain.len();
        match offset.checked_add(len) {
            Some(end) if end <= whole => Ok(()),
            _ => Err(Error::Malformed(format!("byte {offset} and {len} behind it of a BAR of {whole}"))),
        }
    }
}

fn map(path: &Path) -> Result<Bar, Error> {
    let file = File::options().read(true).write(true).open(path).map_err(failed(path))?;
    let len = file.metadata().map_err(failed(path))?.len();
    if len == 0 {
        return Err(Error::Lacking(format!("{}: the function has no BAR2", path.display())));
    }
    Bar::map(&file, len).map_err(|errno| match errno {
        // With CONFIG_IO_STRICT_DEVMEM the kernel refuses what a driver has claimed.
        Errno::EPERM | Errno::EBUSY | Errno::EINVAL => Error::Lacking(format!(
            "{}: the kernel refuses to map it ({errno}): while a driver is bound, it may need the boot option \
             iomem=relaxed",
            path.display()
        )),
        errno => Error::File { path: path.to_owned(), error: errno.into() },
    })
}

impl BarAccess for MappedBar {
    fn load(&mut self, offset: u64, to: &mut [u8]) -> Result<(), Error> {
        self.check(offset, to.len() as u64)?;
        // Combined stores leave the processor first; on the bus, reads do not pass writes.
        fence();
        self.plain.load(offset, to);
        Ok(())
    }

    fn store(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.check(offset, bytes.len() as u64)?;
        self.combining.as_ref().unwrap_or(&self.plain).store(offset, bytes);
        Ok(())
    }

    fn fence(&mut self) {
        fence();
    }

    fn flush_lines(&mut self, offset: u64, bytes: u64) -> Result<(), Error> {
        self.check(offset, bytes)?;
        self.combining.as_ref().unwrap_or(&self.plain).flush_lines(offset, bytes);
        Ok(())
    }
}

impl Transport for Function {
    fn command(&mut self, queue: Queue, sqe: &Sqe, data: &mut [u8]) -> Result<Completion, Error> {
        let refused = |errno: Errno| match errno {
            Errno::EPERM | Errno::EACCES => Error::Lacking("the kernel accepts commands from root only".into()),
            errno => Error::Kernel(errno),
        };
        match queue {
            Queue::Admin => pass(&self.controller, true, sqe, data, TIME_MS).map_err(refused),
            Queue::Io => {
                let at = self.namespace(sqe.nsid())?;
                let (nsid, file) = &self.namespaces[at];
                pass(file, false, &sqe.with_nsid(*nsid), data, TIME_MS).map_err(refused)
            }
        }
    }

    fn bar(&mut self) -> Option<&mut dyn BarAccess> {
        Some(&mut self.bar)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_lspci_and_no_paths() {
        assert_eq!(whole("01:00.0").unwrap(), "0000:01:00.0");
        assert_eq!(whole("0000:AF:1f.7").unwrap(), "0000:af:1f.7");
        assert_eq!(whole("10000:01:00.0").unwrap(), "10000:01:00.0");
        for wrong in
            ["", "..", "01", "01:00", "0000:01:00", "../../1:0.0", "0000:01:00.0/..", "0000:01:00:0", "01.00.0"]
        {
            assert!(matches!(whole(wrong), Err(Error::Target(_))), "{wrong}");
        }
    }

    #[test]
    fn namespaces_are_found_by_what_sysfs_shows() {
        assert_eq!(device_file("nvme0n1"), Some("/dev/nvme0n1".into()));
        assert_eq!(device_file("nvme3c12n129"), Some("/dev/nvme3n129".into()));
        for wrong in ["nvme0", "nvme0n", "nvmen1", "ng0n1", "nvme0n1p1", "nvme0n1/../x"] {
            assert_eq!(device_file(wrong), None, "{wrong}");
        }
    }
}
