//! What Identify returns (NVM Express 1.4, section 5.15; parts of revision 2.0 that drivers ask for), from what the
//! subsystem is.

use super::features::HMB_ENTRIES_MAX;
use super::interface::Transport;
use super::logs::{ERRORS_MAX, FIRMWARE, FIRMWARE_SLOTS};
use super::namespaces::{Namespace, Namespaces};
use super::options::Options;
use super::self_test::EXTENDED_MINUTES;
use super::smart::{CRITICAL_K, WARNING_K};
use tidewater_wire::nvme::identify::{
    self, IDENTIFY_BYTES, IdentifyController, IdentifyNamespace, IndependentNamespace, LbaFormat, NamespaceDescriptor,
    NvmController, NvmNamespace, controller, namespace,
};
use tidewater_wire::nvme::register::VERSION_1_4;
use tidewater_wire::nvme::{Cns, Cqe, Identify, NSID_ALL, Nqn, Sqe, Status, Text};
use tidewater_wire::pci;

/// Data of a command capsule of an I/O queue over fabrics, in bytes.
pub const IN_CAPSULE_BYTES: u32 = 8192;
/// Keep Alive Support: the granularity of the time-out, in 100 ms.
const KEEP_ALIVE_GRANULARITY: u16 = 10;
/// How long a shutdown, and coming back, may take (RTD3E, RTD3R), in microseconds: what was written has to reach the
/// medium.
const SHUTDOWN_US: u32 = 10_000_000;
/// Abort commands that are worked on at once (ACL plus 1): each ends at once.
const ABORTS: u8 = 4;

/// Asynchronous Event Requests that a controller holds, at most (AERL plus 1).
pub const EVENT_REQUESTS: u8 = 4;

/// What Identify has to know of the controller that is asked.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The subsystem.
    pub options: &'a Options,
    /// The profile's name, for the model number.
    pub profile: &'a str,
    /// The controller.
    pub function: u8,
    /// How it is attached.
    pub transport: Transport,
    /// It takes commands that destroy.
    pub privileged: bool,
}

impl Asked<'_> {
    /// What Identify returns: 4,096 bytes. `exists` says which controllers there are.
    ///
    /// # Errors
    /// Invalid Namespace or Format for identifiers that no namespace can have; Invalid Field in Command for command
    /// sets other than NVM.
    pub fn answer(
        &self,
        identify: &Identify,
        namespaces: &Namespaces,
        exists: impl Fn(u8) -> bool,
    ) -> Result<Box<[u8; IDENTIFY_BYTES]>, Status> {
        let &Identify { cns, nsid, controller: first, csi } = identify;
        if csi != 0 {
            return Err(Status::INVALID_FIELD);
        }
        // A namespace that is not attached, or does not exist, is returned as zeroes (section 5.15.2.1); what can't be
        // one is not.
        let any = |attached: bool| match namespaces.at(nsid) {
            Ok(ns) if !attached || ns.attached.has(self.function) => Ok(Some(ns)),
            Err(Status::INVALID_NAMESPACE) => Err(Status::INVALID_NAMESPACE),
            _ => Ok(None),
        };
        let list_from = || if nsid >= NSID_ALL - 1 { Err(Status::INVALID_NAMESPACE) } else { Ok(nsid) };
        let page = match cns {
            Cns::Controller => self.controller(namespaces).to_bytes(),
            Cns::Namespace if nsid == NSID_ALL => self.namespace(None, namespaces).to_bytes(),
            Cns::Namespace | Cns::AllocatedNamespace => match any(cns == Cns::Namespace)? {
                Some(ns) => self.namespace(Some(ns), namespaces).to_bytes(),
                None => [0; IDENTIFY_BYTES],
            },
            Cns::ActiveNamespaces | Cns::CommandSetActiveNamespaces => {
                identify::namespace_list(namespaces.active(self.function), list_from()?)
            }
            Cns::AllocatedNamespaces | Cns::CommandSetAllocatedNamespaces => {
                identify::namespace_list(namespaces.allocated().map(|ns| ns.nsid), list_from()?)
            }
            Cns::NamespaceDescriptors => {
                let ns = any(true)?.ok_or(Status::INVALID_NAMESPACE)?;
                let ids = namespaces.identifiers(ns);
                identify::namespace_descriptors(&[
                    NamespaceDescriptor::Eui64(ids.eui64),
                    NamespaceDescriptor::Nguid(ids.nguid),
                    NamespaceDescriptor::Uuid(ids.uuid),
                    NamespaceDescriptor::CommandSet(0),
                ])
            }
            // No protection information and no limits other than those of the fields.
            Cns::CommandSetNamespace | Cns::CommandSetAllocatedNamespace => {
                any(cns == Cns::CommandSetNamespace)?;
                NvmNamespace::default().to_bytes()
            }
            Cns::CommandSetController => NvmController::default().to_bytes(),
            Cns::IndependentNamespace => match any(true)? {
                Some(ns) => IndependentNamespace {
                    nmic: u8::from(ns.shared),
                    nsattr: u8::from(ns.is_protected()),
                    nstat: 1,
                    ..IndependentNamespace::default()
                }
                .to_bytes(),
                None => [0; IDENTIFY_BYTES],
            },
            Cns::AttachedControllers => {
                let attached = namespaces.at(nsid)?.attached;
                identify::controller_list(attached.iter().filter(|&id| exists(id)).map(u16::from), first)
            }
            Cns::Controllers => identify::controller_list((0..=u8::MAX).filter(|&id| exists(id)).map(u16::from), first),
            Cns::CommandSets => identify::command_sets(),
        };
        Ok(Box::new(page))
    }

    /// Identify Controller.
    pub fn controller(&self, namespaces: &Namespaces) -> IdentifyController {
        use controller::*;
        let options = self.options;
        let pcie = self.transport == Transport::Pcie;
        let several = usize::from(options.functions) + usize::from(options.fabrics) > 1;
        let when = |on: bool, bits: u16| if on { bits } else { 0 };
        IdentifyController {
            vid: when(pcie, pci::VENDOR_ID),
            ssvid: when(pcie, pci::VENDOR_ID),
            serial: Text::new(&options.serial),
            model: Text::new(&format!("Tidewater {}", self.profile)),
            firmware: Text::new(FIRMWARE),
            cmic: if several { CMIC_PORTS | CMIC_CONTROLLERS } else { 0 },
            mdts: (options.transfer_max / 4096).ilog2() as u8,
            cntlid: self.function.into(),
            version: VERSION_1_4,
            rtd3r_us: SHUTDOWN_US,
            rtd3e_us: SHUTDOWN_US,
            oaes: OAES_NAMESPACE,
            // Over PCIe only admin commands restart the Keep Alive Timer.
            ctratt: CTRATT_HOST_ID_128 | if pcie { 0 } else { CTRATT_TRAFFIC_KEEP_ALIVE },
            controller_type: 1,
            oacs: when(self.privileged, OACS_SELF_TEST | OACS_FORMAT | OACS_NAMESPACES)
                | when(pcie, OACS_DOORBELL_BUFFER),
            acl: ABORTS - 1,
            aerl: EVENT_REQUESTS - 1,
            frmw: FIRMWARE_SLOTS << 1 | FRMW_SLOT_1_READ_ONLY,
            lpa: LPA_EFFECTS | LPA_EXTENDED,
            elpe: (ERRORS_MAX - 1) as u8,
            // Vendor commands have the common format.
            avscc: 1,
            nvscc: 1,
            wctemp: WARNING_K,
            cctemp: CRITICAL_K,
            hmpre: if pcie { options.hmb_preferred } else { 0 },
            hmmin: if pcie { options.hmb_minimum } else { 0 },
            hmmaxd: when(pcie && options.hmb_preferred > 0, HMB_ENTRIES_MAX),
            tnvmcap: namespaces.geometry().bytes().into(),
            unvmcap: namespaces.unallocated().into(),
            edstt: when(self.privileged, EXTENDED_MINUTES),
            dsto: 1,
            kas: KEEP_ALIVE_GRANULARITY,
            sanicap: if self.privileged {
                SANICAP_BLOCK | SANICAP_NO_DEALLOCATE_INHIBITED | SANICAP_NOT_MODIFIED
            } else {
                0
            },
            sqes: 0x66,
            cqes: 0x44,
            maxcmd: when(!pcie, options.queue_entries.min(u16::MAX.into()) as u16),
            nn: namespaces.highest(),
            oncs: ONCS_COMPARE | ONCS_DATASET_MANAGEMENT | ONCS_WRITE_ZEROES | ONCS_SAVE | ONCS_TIMESTAMP | ONCS_VERIFY,
            // Format is of one namespace, and there is no key to throw away.
            fna: 0,
            vwc: VWC_PRESENT | VWC_FLUSH_ALL,
            // What holds for every namespace: one block. Identify Namespace tells more.
            awun: 0,
            awupf: 0,
            nwpc: if self.privileged { NWPC_PROTECT | NWPC_UNTIL_POWER_CYCLE } else { 0 },
            sgls: if pcie {
                SGLS_SUPPORTED | SGLS_BIT_BUCKET | SGLS_LONGER
            } else {
                SGLS_SUPPORTED | SGLS_OFFSET | SGLS_TRANSPORT
            },
            mnan: namespaces.highest(),
            subnqn: Nqn::new(&options.nqn).unwrap_or_default(),
            ioccsz: if pcie { 0 } else { (Sqe::SIZE as u32 + IN_CAPSULE_BYTES) / 16 },
            iorcsz: if pcie { 0 } else { Cqe::SIZE as u32 / 16 },
            ofcs: when(!pcie, OFCS_DISCONNECT),
            ..IdentifyController::default()
        }
    }

    /// Identify Namespace; `None`: what all namespaces have in common.
    pub fn namespace(&self, ns: Option<&Namespace>, namespaces: &Namespaces) -> IdentifyNamespace {
        use namespace::*;
        let geometry = namespaces.geometry();
        let mut page = IdentifyNamespace {
            nsfeat: NSFEAT_ATOMIC | NSFEAT_PERFORMANCE,
            nlbaf: (geometry.formats().len() - 1) as u8,
            dlfeat: DLFEAT_ZEROES | DLFEAT_WRITE_ZEROES,
            ..IdentifyNamespace::default()
        };
        for (format, &data_shift) in page.formats.iter_mut().zip(geometry.formats()) {
            // A block that is smaller than a unit costs reading the rest of it.
            let performance = u8::from(data_shift < geometry.unit_shift.min(12)) * 2;
            *format = LbaFormat { metadata: 0, data_shift, performance };
        }
        let Some(ns) = ns else { return page };
        let ids = namespaces.identifiers(ns);
        // Writes within a unit are whole or not at all; what crosses its edge is not.
        let unit = ((1u32 << (geometry.unit_shift - ns.block_shift)) - 1) as u16;
        IdentifyNamespace {
            nsze: ns.blocks,
            ncap: ns.blocks,
            nuse: ns.blocks,
            flbas: geometry.formats().iter().position(|&shift| shift == ns.block_shift).unwrap_or(0) as u8,
            nmic: if ns.shared { NMIC_SHARED } else { 0 },
            nawun: unit,
            nawupf: unit,
            nabsn: unit,
            nabspf: unit,
            nvmcap: ns.capacity().into(),
            npwg: unit,
            npwa: unit,
            npdg: unit,
            npda: unit,
            nows: unit,
            nsattr: if ns.is_protected() { NSATTR_PROTECTED } else { 0 },
            nguid: ids.nguid,
            eui64: ids.eui64,
            ..page
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile;
    use crate::subsystem::namespaces::{Geometry, Initial, NAMESPACES_MAX};
    use tidewater_wire::nvme::NamespaceManagement;
    use tidewater_wire::nvme::feature::Protection;
    use tidewater_wire::nvme::identify::{parse_controller_list, parse_namespace_descriptors, parse_namespace_list};

    const GEOMETRY: Geometry = Geometry { blocks: 8192, block_shift: 9, unit_shift: 12 };

    fn options() -> Options {
        let generic = profile::builtin(profile::names().next().expect("there are built-in profiles"));
        Options { functions: 1, fabrics: 2, serial: "TW0001".into(), ..Options::of(&generic.expect("it is valid")) }
    }

    fn asked(options: &Options, transport: Transport) -> Asked<'_> {
        Asked { options, profile: "generic", function: 0, transport, privileged: true }
    }

    fn ask(cns: Cns, nsid: u32) -> Identify {
        Identify { cns, nsid, controller: 0, csi: 0 }
    }

    fn three() -> Namespaces {
        let mut all = Namespaces::new(GEOMETRY, 5);
        all.add(Initial { bytes: 1 << 20, block_shift: 9, shared: true }).unwrap();
        all.add(Initial { bytes: 1 << 20, block_shift: 12, shared: true }).unwrap();
        all.create(0, &NamespaceManagement { nsze: 8, ncap: 8, ..Default::default() }).unwrap();
        all
    }

    #[test]
    fn a_controller_says_what_it_is() {
        let options = options();
        let all = three();
        let page = asked(&options, Transport::Pcie).answer(&ask(Cns::Controller, 0), &all, |_| true).unwrap();
        let it = IdentifyController::parse(&page[..]).unwrap();
        assert_eq!((it.serial.to_string(), it.model.to_string()), ("TW0001".into(), "Tidewater generic".into()));
        assert_eq!((it.firmware.to_string(), it.subnqn.to_string()), (FIRMWARE.into(), options.nqn.clone()));
        assert_eq!(4096u32 << it.mdts, options.transfer_max);
        assert_eq!((it.tnvmcap, it.unvmcap), (4 << 20, (2 << 20) - 4096));
        assert_eq!((it.sqes, it.cqes, it.ioccsz, it.kas), (0x66, 0x44, 0, 10));
        assert_eq!((it.cmic, it.nn, it.mnan), (3, 128, 128));
        let remote = asked(&options, Transport::Fabrics).controller(&all);
        assert_eq!((remote.ioccsz, remote.iorcsz, remote.kas, remote.oacs & 1 << 8), (516, 1, 10, 0));
        assert_eq!((remote.ofcs, it.ofcs), (1, 0), "queues of a connection come and go one by one");
        assert!(remote.maxcmd > 0 && remote.vid == 0);
        let poor = Asked { privileged: false, ..asked(&options, Transport::Pcie) }.controller(&all);
        assert_eq!((poor.oacs & (controller::OACS_FORMAT | controller::OACS_SELF_TEST), poor.sanicap), (0, 0));
        assert_eq!((poor.nwpc, poor.edstt, it.nwpc & 1, it.edstt), (0, 0, 1, EXTENDED_MINUTES));
        let alone = Options { fabrics: 0, ..options };
        assert_eq!(asked(&alone, Transport::Pcie).controller(&all).cmic, 0);
    }

    #[test]
    fn namespaces_say_what_they_are() {
        let options = options();
        let mut all = three();
        all.protect(2, 0, Protection::Protected).unwrap();
        let me = asked(&options, Transport::Pcie);
        let of = |cns, nsid| me.answer(&ask(cns, nsid), &all, |_| true);
        let ns = |cns, nsid| of(cns, nsid).map(|page| IdentifyNamespace::parse(&page[..]).unwrap());
        let first = ns(Cns::Namespace, 1).unwrap();
        assert_eq!((first.nsze, first.block_shift(), first.nawupf, first.npwg), (2048, Some(9), 7, 7));
        assert_eq!((first.nlbaf, first.formats[1].data_shift, first.nmic), (1, 12, 1));
        let second = ns(Cns::Namespace, 2).unwrap();
        assert_eq!((second.nsze, second.block_shift(), second.nawupf, second.nsattr), (256, Some(12), 0, 1));
        assert_eq!(second.nvmcap, 1 << 20);
        assert_eq!(ns(Cns::Namespace, 3), Ok(IdentifyNamespace::default()), "it is not attached");
        assert_eq!(ns(Cns::AllocatedNamespace, 3).unwrap().nsze, 8);
        assert_eq!(ns(Cns::AllocatedNamespace, 4), Ok(IdentifyNamespace::default()));
        let common = ns(Cns::Namespace, NSID_ALL).unwrap();
        assert_eq!((common.nsze, common.nlbaf), (0, 1));
        for nsid in [0, NAMESPACES_MAX + 1] {
            assert_eq!(ns(Cns::Namespace, nsid), Err(Status::INVALID_NAMESPACE));
        }
        assert_eq!(ns(Cns::AllocatedNamespace, NSID_ALL), Err(Status::INVALID_NAMESPACE));

        let descriptors = parse_namespace_descriptors(&of(Cns::NamespaceDescriptors, 1).unwrap()[..]);
        assert_eq!(descriptors.len(), 4);
        assert!(descriptors.contains(&NamespaceDescriptor::Nguid(first.nguid)));
        assert_eq!(of(Cns::NamespaceDescriptors, 3), Err(Status::INVALID_NAMESPACE));
        assert_eq!(of(Cns::IndependentNamespace, 2).unwrap()[8], 1);
        assert_eq!(of(Cns::CommandSets, 0).unwrap()[..9], [1, 0, 0, 0, 0, 0, 0, 0, 0]);
        let zoned = Identify { csi: 2, ..ask(Cns::CommandSetNamespace, 1) };
        assert_eq!(me.answer(&zoned, &all, |_| true), Err(Status::INVALID_FIELD));
    }

    #[test]
    fn lists_name_what_there_is() {
        let options = options();
        let mut all = three();
        all.attach(3, true, &[2], |_| true).unwrap();
        let me = asked(&options, Transport::Pcie);
        let exists = |id| id < 3;
        let list = |cns, nsid| me.answer(&ask(cns, nsid), &all, exists).map(|page| parse_namespace_list(&page[..]));
        assert_eq!(list(Cns::ActiveNamespaces, 0), Ok(vec![1, 2]));
        assert_eq!(list(Cns::AllocatedNamespaces, 1), Ok(vec![2, 3]));
        assert_eq!(list(Cns::ActiveNamespaces, NSID_ALL), Err(Status::INVALID_NAMESPACE));
        assert_eq!(list(Cns::ActiveNamespaces, NSID_ALL - 1), Err(Status::INVALID_NAMESPACE));
        let ids = |cns, nsid, controller| {
            let identify = Identify { controller, ..ask(cns, nsid) };
            me.answer(&identify, &all, exists).map(|page| parse_controller_list(&page[..]).unwrap())
        };
        assert_eq!(ids(Cns::Controllers, 0, 1), Ok(vec![1, 2]));
        assert_eq!(ids(Cns::AttachedControllers, 1, 0), Ok(vec![0, 1, 2]));
        assert_eq!(ids(Cns::AttachedControllers, 3, 0), Ok(vec![2]));
        assert_eq!(ids(Cns::AttachedControllers, 4, 0), Err(Status::INVALID_FIELD));
    }

    #[test]
    fn whatever_is_asked_is_answered() {
        let options = options();
        let all = three();
        for transport in [Transport::Pcie, Transport::Fabrics] {
            for &(_, cns) in Cns::ALL {
                for nsid in [0, 1, 3, 4, 128, 129, NSID_ALL - 1, NSID_ALL] {
                    for csi in [0, 1, 255] {
                        let identify = Identify { cns, nsid, controller: u16::MAX, csi };
                        let answer = asked(&options, transport).answer(&identify, &all, |_| false);
                        assert!(answer.is_ok() || matches!(answer, Err(status) if status.name().is_some()));
                    }
                }
            }
        }
    }
}
