//! Fields of the pages under the names of nvme-cli. Fields of absent features are left out.

use super::table::Table;
use tidewater_base::units::format_bytes;
use tidewater_wire::nvme::Status;
use tidewater_wire::nvme::identify::{IdentifyController, IdentifyNamespace};
use tidewater_wire::nvme::log::{ErrorEntry, SmartLog, critical_warning};
use tidewater_wire::vendor::{BarLayout, FastStatus, NO_FLOOR, WindowStatus};

/// Bytes of a data unit of the health log (section 5.14.1.2): 1,000 times 512.
const DATA_UNIT: u128 = 512_000;

/// A number of bytes beside itself in words.
fn bytes(table: Table, name: &str, value: u128) -> Table {
    match u64::try_from(value) {
        Ok(small) => table.with(name, small, format_args!("{small} ({})", format_bytes(small))),
        Err(_) => table.number(name, value),
    }
}

/// A temperature.
fn kelvins(table: Table, name: impl Into<String>, value: u16) -> Table {
    table.with(name, value, format_args!("{value} K ({} °C)", i32::from(value) - 273))
}

/// Identify Controller.
pub fn controller(page: &IdentifyController) -> Table {
    let (major, minor, tertiary) = (page.version >> 16, page.version >> 8 & 0xFF, page.version & 0xFF);
    let table = Table::default()
        .hex("vid", page.vid)
        .hex("ssvid", page.ssvid)
        .words("sn", page.serial)
        .words("mn", page.model)
        .words("fr", page.firmware)
        .number("rab", page.rab)
        .bytes("ieee", &[page.ieee[2], page.ieee[1], page.ieee[0]])
        .hex("cmic", page.cmic)
        .number("mdts", page.mdts)
        .number("cntlid", page.cntlid)
        .with("ver", page.version, format_args!("{:#x} ({major}.{minor}.{tertiary})", page.version))
        .unit("rtd3r", page.rtd3r_us, " us")
        .unit("rtd3e", page.rtd3e_us, " us")
        .hex("oaes", page.oaes)
        .hex("ctratt", page.ctratt)
        .number("cntrltype", page.controller_type)
        .bytes("fguid", &page.fguid)
        .hex("oacs", page.oacs)
        .number("acl", page.acl)
        .number("aerl", page.aerl)
        .hex("frmw", page.frmw)
        .hex("lpa", page.lpa)
        .number("elpe", page.elpe)
        .number("npss", page.npss)
        .hex("avscc", page.avscc)
        .hex("apsta", page.apsta);
    let table = kelvins(table, "wctemp", page.wctemp);
    let table = kelvins(table, "cctemp", page.cctemp);
    let table = table.number("hmpre", page.hmpre).number("hmmin", page.hmmin);
    let table = bytes(table, "tnvmcap", page.tnvmcap);
    let table = bytes(table, "unvmcap", page.unvmcap)
        .unit("edstt", page.edstt, " min")
        .hex("dsto", page.dsto)
        .number("fwug", page.fwug)
        .number("kas", page.kas)
        .hex("sanicap", page.sanicap)
        .number("hmminds", page.hmminds)
        .number("hmmaxd", page.hmmaxd)
        .hex("sqes", page.sqes)
        .hex("cqes", page.cqes)
        .number("maxcmd", page.maxcmd)
        .number("nn", page.nn)
        .hex("oncs", page.oncs)
        .hex("fuses", page.fuses)
        .hex("fna", page.fna)
        .hex("vwc", page.vwc)
        .number("awun", page.awun)
        .number("awupf", page.awupf)
        .hex("icsvscc", page.nvscc)
        .hex("nwpc", page.nwpc)
        .number("acwu", page.acwu)
        .hex("sgls", page.sgls)
        .number("mnan", page.mnan)
        .words("subnqn", page.subnqn)
        .number("ioccsz", page.ioccsz)
        .number("iorcsz", page.iorcsz)
        .number("icdoff", page.icdoff)
        .hex("fcatt", page.fcatt)
        .number("msdbd", page.msdbd)
        .hex("ofcs", page.ofcs);
    let states = page.power_states.iter().take(usize::from(page.npss) + 1).map(|state| {
        // Bit 0 of the flags: in units of 0.1 mW, else of 10 mW.
        let tenths = u32::from(state.max_power) * if state.flags & 1 != 0 { 1 } else { 100 };
        Table::default()
            .with("mp", f64::from(tenths) / 10_000.0, format_args!("{:.2} W", f64::from(tenths) / 10_000.0))
            .with("nops", state.flags & 2 != 0, state.flags >> 1 & 1)
            .unit("enlat", state.entry_latency_us, " us")
            .unit("exlat", state.exit_latency_us, " us")
    });
    table.list("ps", states.collect())
}

/// Identify Namespace.
pub fn namespace(nsid: u32, page: &IdentifyNamespace) -> Table {
    let table = Table::default()
        .number("nsid", nsid)
        .unit("nsze", page.nsze, " blocks")
        .unit("ncap", page.ncap, " blocks")
        .unit("nuse", page.nuse, " blocks")
        .hex("nsfeat", page.nsfeat)
        .number("nlbaf", page.nlbaf)
        .hex("flbas", page.flbas)
        .hex("mc", page.mc)
        .hex("dpc", page.dpc)
        .hex("dps", page.dps)
        .hex("nmic", page.nmic)
        .hex("rescap", page.rescap)
        .hex("fpi", page.fpi)
        .hex("dlfeat", page.dlfeat)
        .number("nawun", page.nawun)
        .number("nawupf", page.nawupf)
        .number("nacwu", page.nacwu)
        .number("nabsn", page.nabsn)
        .number("nabo", page.nabo)
        .number("nabspf", page.nabspf)
        .number("noiob", page.noiob);
    let table = bytes(table, "nvmcap", page.nvmcap)
        .number("npwg", page.npwg)
        .number("npwa", page.npwa)
        .number("npdg", page.npdg)
        .number("npda", page.npda)
        .number("nows", page.nows)
        .number("anagrpid", page.anagrpid)
        .hex("nsattr", page.nsattr)
        .number("nvmsetid", page.nvmsetid)
        .number("endgid", page.endgid)
        .bytes("nguid", &page.nguid)
        .bytes("eui64", &page.eui64);
    let formats = page.formats.iter().take(usize::from(page.nlbaf) + 1).zip(0..).map(|(format, index)| {
        let in_use = index == page.flbas & 0xF;
        Table::default()
            .number("ms", format.metadata)
            .number("lbads", format.data_shift)
            .number("rp", format.performance)
            .with("in_use", in_use, if in_use { "yes" } else { "no" })
    });
    table.list("lbaf", formats.collect())
}

/// Active namespaces.
pub fn list(controller: &IdentifyController, namespaces: &[(u32, IdentifyNamespace)]) -> Table {
    let namespaces = namespaces.iter().map(|(nsid, page)| {
        let shift = page.block_shift().unwrap_or(0);
        let in_bytes = |blocks: u64| u128::from(blocks) << shift;
        let table = Table::default().number("nsid", *nsid);
        let table = bytes(table, "used_bytes", in_bytes(page.nuse));
        let table = bytes(table, "physical_size", in_bytes(page.nsze));
        table.unit("sector_size", 1_u64 << shift, " B")
    });
    Table::default()
        .words("sn", controller.serial)
        .words("mn", controller.model)
        .words("fr", controller.firmware)
        .words("subnqn", controller.subnqn)
        .list("namespace", namespaces.collect())
}

/// SMART / Health Information.
pub fn smart(page: &SmartLog) -> Table {
    const WARNINGS: [(u8, &str); 6] = [
        (critical_warning::SPARE, "spare is low"),
        (critical_warning::TEMPERATURE, "temperature"),
        (critical_warning::RELIABILITY, "reliability is degraded"),
        (critical_warning::READ_ONLY, "read-only"),
        (critical_warning::BACKUP, "backup of volatile memory has failed"),
        (critical_warning::PMR, "persistent memory region is unreliable"),
    ];
    let set: Vec<&str> =
        WARNINGS.iter().filter(|(bit, _)| page.critical_warning & bit != 0).map(|(_, words)| *words).collect();
    let warning = match set.is_empty() {
        true => format!("{:#x}", page.critical_warning),
        false => format!("{:#x} ({})", page.critical_warning, set.join(", ")),
    };
    let units = |table: Table, name: &str, units: u128| match u64::try_from(units.saturating_mul(DATA_UNIT)) {
        Ok(all) => table.with(name, all / DATA_UNIT as u64, format_args!("{units} ({})", format_bytes(all))),
        Err(_) => table.number(name, units),
    };
    let table = Table::default().with("critical_warning", page.critical_warning, warning);
    let table = kelvins(table, "temperature", page.temperature)
        .unit("avail_spare", page.available_spare, "%")
        .unit("spare_thresh", page.spare_threshold, "%")
        .unit("percent_used", page.percentage_used, "%");
    let table = units(table, "data_units_read", page.data_units_read);
    let table = units(table, "data_units_written", page.data_units_written)
        .number("host_read_commands", page.host_reads)
        .number("host_write_commands", page.host_writes)
        .unit("controller_busy_time", page.busy_minutes, " min")
        .number("power_cycles", page.power_cycles)
        .number("power_on_hours", page.power_on_hours)
        .number("unsafe_shutdowns", page.unsafe_shutdowns)
        .number("media_errors", page.media_errors)
        .number("num_err_log_entries", page.error_entries)
        .unit("warning_temp_time", page.warning_minutes, " min")
        .unit("critical_comp_time", page.critical_minutes, " min");
    let sensors = page.sensors.iter().zip(1..).filter(|(kelvins, _)| **kelvins != 0);
    sensors.fold(table, |table, (value, number)| kelvins(table, format!("temperature_sensor_{number}"), *value))
}

/// Error Information: the newest first.
pub fn errors(entries: &[ErrorEntry]) -> Table {
    let entries = entries.iter().map(|entry| {
        let status = Status::from_bits(entry.status >> 1);
        let name = status.name().unwrap_or("a status without name");
        Table::default()
            .number("error_count", entry.count)
            .number("sqid", entry.sqid)
            .hex("cmdid", entry.cid)
            .with("status_field", status.bits(), format_args!("{:#x} ({name})", status.bits()))
            .number("phase_tag", entry.status & 1)
            .hex("parm_error_location", entry.location)
            .number("lba", entry.lba)
            .hex("nsid", entry.nsid)
            .hex("vs", entry.vendor_page)
            .number("trtype", entry.transport)
            .hex("cs", entry.specific)
            .hex("trtype_spec_info", entry.transport_specific)
    });
    Table::default().list("entry", entries.collect())
}

/// A stream offset, of which all ones means none.
fn offset(table: Table, name: &str, value: u64) -> Table {
    if value == NO_FLOOR { table.with(name, serde_json::Value::Null, "none") } else { table.number(name, value) }
}

/// Fast Status. Offsets are stream offsets in bytes.
pub fn fast_status(page: &FastStatus) -> Table {
    let table = Table::default()
        .number("function", page.function)
        .number("lanes", page.lanes)
        .words("role", page.role)
        .number("node", page.node)
        .words("mode", page.mode)
        .words("status", page.status)
        .words("epoch", page.epoch)
        .number("lba_first", page.lba_first)
        .number("lba_count", page.lba_count)
        .number("lba_head", page.lba_head)
        .number("lba_tail", page.lba_tail)
        .number("bytes_cut", page.bytes_cut)
        .unit("energy_needed", page.energy_needed_nj, " nJ")
        .unit("energy_stored", page.energy_stored_nj, " nJ");
    let lanes = page.lane.iter().take(page.lanes.into()).map(|lane| {
        let table = Table::default().number("persisted", lane.persisted).number("credit", lane.credit);
        let table = offset(table, "floor", lane.floor);
        offset(table, "replicated", lane.replicated)
            .number("destaged", lane.destaged)
            .number("readable", lane.readable)
            .number("drops", lane.drops)
            .number("first_drop", lane.first_drop)
            .number("bytes_destaged", lane.bytes_destaged)
            .number("pages_destaged", lane.pages_destaged)
            .number("pages_partial", lane.pages_partial)
            .number("pages_rewritten", lane.pages_rewritten)
    });
    table.list("lane", lanes.collect())
}

/// Window: where it is, and how it is doing.
pub fn window_status(page: &WindowStatus) -> Table {
    let table = Table::default().number("entries", page.entries).number("pinned", page.pinned);
    let table = table
        .words("gate", if page.holds { "hold" } else { "refuse" })
        .words("survives", if page.survives { "yes" } else { "no" })
        .hex("bar_offset", page.bar_offset);
    bytes(table, "bytes", page.bytes.into())
        .unit("granularity", page.granularity, " B")
        .number("held", page.held)
        .number("stores_dropped", page.stores_dropped)
        .number("loads_outside", page.loads_outside)
        .number("dumps_lost", page.dumps_lost)
        .unit("energy_needed", page.energy_needed_nj, " nJ")
        .unit("energy_stored", page.energy_stored_nj, " nJ")
}

/// Layout of the fast side in BAR2.
pub fn fast_layout(page: &BarLayout) -> Table {
    let table = Table::default().number("function", page.function).number("lanes", page.lanes);
    let table = bytes(table, "bar_bytes", page.bar_bytes.into())
        .hex("control_page_offset", page.control_page_offset)
        .hex("queues_offset", page.queues_offset);
    let table = bytes(table, "queues_bytes", page.queues_bytes.into());
    let lanes = page.lane.iter().take(page.lanes.into()).map(|lane| {
        Table::default()
            .hex("window_offset", lane.window_offset)
            .number("window_bytes", lane.window_bytes)
            .hex("lane_page_offset", lane.lane_page_offset)
            .number("queue_bytes", lane.queue_bytes)
    });
    table.list("lane", lanes.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_is_told_in_units() {
        let page = SmartLog {
            critical_warning: critical_warning::SPARE | critical_warning::READ_ONLY,
            temperature: 308,
            data_units_read: 2,
            data_units_written: u128::MAX,
            sensors: [0, 300, 0, 0, 0, 0, 0, 0],
            ..Default::default()
        };
        let text = smart(&page).text();
        for line in [
            "critical_warning     : 0x9 (spare is low, read-only)",
            "temperature          : 308 K (35 °C)",
            "temperature_sensor_2 : 300 K (27 °C)",
            "avail_spare          : 0%",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        let value: serde_json::Value = serde_json::from_str(&smart(&page).json()).unwrap();
        assert_eq!(value["data_units_read"], 2);
        assert_eq!(value["data_units_written"], u128::MAX.to_string());
    }

    #[test]
    fn a_floor_of_all_ones_is_none() {
        let mut page = FastStatus { lanes: 1, ..Default::default() };
        page.lane[0].floor = NO_FLOOR;
        page.lane[0].credit = 7;
        let value: serde_json::Value = serde_json::from_str(&fast_status(&page).json()).unwrap();
        assert_eq!(value["lane"][0]["floor"], serde_json::Value::Null);
        assert_eq!(value["lane"][0]["credit"], 7);
    }
}
