//! `tidewater nvme`: what a device says of itself.

mod connect;
pub mod fast;
mod pages;
mod table;
pub mod window;

use crate::args::served::{Nvme, NvmePage, NvmeSide, NvmeWhat};
use crate::failure::Failure;
use crate::output;
use connect::explain;
pub use connect::transport;
use table::Table;
use tidewater_client::hardware::Device;
use tidewater_wire::nvme::identify::{IDENTIFY_BYTES, IdentifyController, IdentifyNamespace, parse_namespace_list};
use tidewater_wire::nvme::log::{ErrorEntry, SmartLog, parse_error_page};
use tidewater_wire::nvme::{AdminCommand, Cns, GetLogPage, Identify, NSID_ALL, log_page};
use tidewater_wire::vendor;

/// `tidewater nvme`.
///
/// # Errors
/// When the device can't be reached, or refuses.
pub fn command(nvme: &Nvme) -> Result<(), Failure> {
    match nvme {
        Nvme { side: Some(NvmeSide::Fast(of)), .. } => fast::command(of),
        Nvme { side: Some(NvmeSide::Window(of)), .. } => window::command(of),
        Nvme { page: Some(of), .. } => page(of),
        // Clap asks for one of them.
        Nvme { page: None, side: None } => Err(Failure::usage("no page is named").help("try tidewater nvme --help")),
    }
}

fn page(nvme: &NvmePage) -> Result<(), Failure> {
    let mut device = connect::open(&nvme.target, nvme.host_nqn.as_deref())?;
    let page = read(&mut device, nvme);
    // Why the page can't be had comes first.
    let shut_down = device.shut_down();
    let table = page?;
    shut_down.map_err(|error| Failure::run(format_args!("the controller does not shut down: {error}")))?;
    output::print(&if nvme.json || nvme.output_format == "json" { table.json() } else { table.text() })
}

/// Reads the page asked for.
fn read(device: &mut Device, asked: &NvmePage) -> Result<Table, Failure> {
    match asked.what {
        NvmeWhat::IdCtrl => Ok(pages::controller(&controller(device)?)),
        NvmeWhat::IdNs => namespace(device, asked.nsid).map(|namespace| pages::namespace(asked.nsid, &namespace)),
        NvmeWhat::List => {
            let controller = controller(device)?;
            let list = identify(device, Cns::ActiveNamespaces, 0)?;
            let mut namespaces = Vec::new();
            for nsid in parse_namespace_list(&list) {
                namespaces.push((nsid, namespace(device, nsid)?));
            }
            Ok(pages::list(&controller, &namespaces))
        }
        NvmeWhat::SmartLog => {
            let page = log(device, log_page::SMART, 0, SmartLog::SIZE)?;
            Ok(pages::smart(&SmartLog::parse(&page).map_err(malformed)?))
        }
        NvmeWhat::ErrorLog => {
            let entries = usize::from(controller(device)?.elpe) + 1;
            let page = log(device, log_page::ERROR, 0, entries * ErrorEntry::SIZE)?;
            Ok(pages::errors(&parse_error_page(&page)))
        }
        NvmeWhat::FastStatus => {
            let function = device.function();
            let page = log(device, vendor::log_page::FAST_STATUS, function, vendor::FastStatus::SIZE)?;
            Ok(pages::fast_status(&vendor::FastStatus::parse(&page).map_err(malformed)?))
        }
        NvmeWhat::FastLayout => {
            let function = device.function();
            let page = log(device, vendor::log_page::LAYOUT, function, vendor::BarLayout::SIZE)?;
            Ok(pages::fast_layout(&vendor::BarLayout::parse(&page).map_err(malformed)?))
        }
    }
}

fn malformed(error: vendor::LayoutError) -> Failure {
    Failure::run(format_args!("invalid reply from the device: {error}"))
}

fn identify(device: &mut Device, cns: Cns, nsid: u32) -> Result<Vec<u8>, Failure> {
    let command = AdminCommand::Identify(Identify { cns, nsid, controller: 0, csi: 0 });
    device.read(&command, IDENTIFY_BYTES, "Identify").map_err(explain)
}

fn controller(device: &mut Device) -> Result<IdentifyController, Failure> {
    let page = identify(device, Cns::Controller, 0)?;
    IdentifyController::parse(&page).map_err(malformed)
}

fn namespace(device: &mut Device, nsid: u32) -> Result<IdentifyNamespace, Failure> {
    let which = |failure: Failure| failure.help("`tidewater nvme list` names the active namespaces");
    let page = identify(device, Cns::Namespace, nsid).map_err(which)?;
    // Identify of a namespace that is not active brings zeroes (section 5.15.2.1).
    if page.iter().all(|&byte| byte == 0) {
        return Err(which(Failure::run(format_args!("namespace {nsid} is not active"))));
    }
    IdentifyNamespace::parse(&page).map_err(malformed)
}

fn log(device: &mut Device, lid: u8, identifier: u16, len: usize) -> Result<Vec<u8>, Failure> {
    // Reading must not use up events that the host of the controller waits for.
    let get =
        GetLogPage { nsid: NSID_ALL, lid, specific: 0, retain: true, len: len as u64, offset: 0, identifier, csi: 0 };
    let standard = log_page::NAMED.iter().find(|(id, _)| *id == lid).map(|(_, name)| *name);
    let own = vendor::REGISTRY.iter().find(|entry| entry.set == vendor::Set::LogPage && entry.code == lid);
    let name = standard.or(own.map(|entry| entry.name)).unwrap_or("the log page");
    device.read(&AdminCommand::GetLogPage(get), len, name).map_err(explain)
}
