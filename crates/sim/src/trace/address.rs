//! Address spaces: telling them apart, choosing one, and placing several one after the other.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Bytes set aside for each address space when the trace cannot be read twice: 16 TiB.
pub const SLOT_BYTES: u64 = 1 << 44;

/// Address spaces start at multiples of this, so that no two share a page.
const ALIGNMENT: u64 = 1 << 20;

/// A request that goes over more regions than this is a deallocation of much or all of a volume, which is not a use of
/// it.
const USE_REGIONS: u64 = 1 << 12;

/// Numbers address spaces in order of appearance.
pub(super) struct Devices {
    numbers: HashMap<Box<[u8]>, u32>,
    /// The last one looked up: requests of one device often follow each other.
    last: Option<(Box<[u8]>, u32)>,
    wanted: Option<String>,
    /// A few that the filter left out, for the message when nothing is left.
    others: BTreeSet<String>,
}

impl Devices {
    pub fn new(wanted: Option<&str>) -> Devices {
        Devices { numbers: HashMap::new(), last: None, wanted: wanted.map(str::to_owned), others: BTreeSet::new() }
    }

    pub fn len(&self) -> u32 {
        self.numbers.len() as u32
    }

    /// The names by number, as people use them.
    pub fn names(&self) -> Vec<String> {
        let mut names = vec![String::new(); self.numbers.len()];
        self.numbers.iter().for_each(|(name, &number)| names[number as usize] = display(name));
        names
    }

    /// The number of `device`, or `None` when the filter leaves it out.
    pub fn number(&mut self, device: &[u8]) -> Option<u32> {
        if let Some((last, number)) = &self.last
            && **last == *device
        {
            return Some(*number);
        }
        let number = match self.numbers.get(device) {
            Some(&number) => number,
            None => {
                if let Some(wanted) = &self.wanted {
                    let name = display(device);
                    if name != *wanted && device != wanted.as_bytes() {
                        if self.others.len() < 8 {
                            self.others.insert(name);
                        }
                        return None;
                    }
                }
                let number = self.numbers.len() as u32;
                self.numbers.insert(device.into(), number);
                number
            }
        };
        self.last = Some((device.into(), number));
        Some(number)
    }

    /// Why the filter left nothing, if it did.
    pub fn left_out(&self) -> Option<String> {
        let wanted = self.wanted.as_ref()?;
        if self.others.is_empty() {
            return None;
        }
        let some: Vec<&str> = self.others.iter().map(String::as_str).collect();
        Some(format!("no request for device \"{wanted}\"; the trace has {}", some.join(", ")))
    }

    /// The numbers in the order of the names: numeric names by value, others by text after them.
    fn sorted(&self) -> Vec<u32> {
        let mut all: Vec<(u64, &[u8], u32)> = self.numbers.iter().map(|(name, &n)| (order(name), &**name, n)).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, _, number)| number).collect()
    }
}

fn order(name: &[u8]) -> u64 {
    std::str::from_utf8(name).ok().and_then(|text| text.parse().ok()).unwrap_or(u64::MAX)
}

/// The name that people use: `hm_0` where the trace has the columns `hm,0`.
fn display(device: &[u8]) -> String {
    String::from_utf8_lossy(device).replace(", ", "_").replace(',', "_")
}

/// Extents of the address spaces, found by a first pass.
pub(super) struct Extents {
    ends: Vec<u64>,
    /// Regions of `ALIGNMENT` bytes that a request touches, where they are wanted.
    touched: Option<BTreeSet<(u32, u64)>>,
}

impl Extents {
    pub fn new(compact: bool) -> Extents {
        Extents { ends: Vec::new(), touched: compact.then(BTreeSet::new) }
    }

    pub fn add(&mut self, device: u32, offset: u64, length: u64) {
        let device_index = device as usize;
        if self.ends.len() <= device_index {
            self.ends.resize(device_index + 1, 0);
        }
        self.ends[device_index] = self.ends[device_index].max(offset + length);
        if let Some(touched) = &mut self.touched
            && length > 0
        {
            let (first, last) = (offset / ALIGNMENT, (offset + length - 1) / ALIGNMENT);
            // What is no use needs a place all the same, even where it covers nothing that is used: that of its first
            // region.
            let last = if last - first > USE_REGIONS { first } else { last };
            touched.extend((first..=last).map(|region| (device, region)));
        }
    }

    /// Places the address spaces one after the other, in the order of their names; also the bytes they take in all.
    pub fn place(self, devices: &Devices) -> Result<(AddressMap, u64), &'static str> {
        const TOO_LARGE: &str = "its address spaces together pass 2^63 bytes; choose one with --volume";
        if let Some(touched) = self.touched {
            let rank: HashMap<u32, usize> = devices.sorted().into_iter().zip(0..).collect();
            let mut regions: Vec<(usize, u32, u64)> =
                touched.into_iter().map(|(device, region)| (rank[&device], device, region)).collect();
            regions.sort_unstable();
            let extent = regions.len() as u64 * ALIGNMENT;
            let mut places = BTreeMap::new();
            for (place, (_, device, region)) in regions.into_iter().enumerate() {
                places.insert((device, region), place as u64);
            }
            return Ok((AddressMap::Compact(places), extent));
        }
        if self.ends.len() == 1 {
            return Ok((AddressMap::Bases(vec![0]), self.ends[0]));
        }
        let mut bases = vec![0; self.ends.len()];
        let (mut next, mut extent) = (0u64, 0);
        for device in devices.sorted() {
            let end = self.ends.get(device as usize).copied().unwrap_or(0);
            let base = next.checked_next_multiple_of(ALIGNMENT).ok_or(TOO_LARGE)?;
            if let Some(slot) = bases.get_mut(device as usize) {
                *slot = base;
            }
            next = base.checked_add(end).filter(|&n| n <= 1 << 63).ok_or(TOO_LARGE)?;
            extent = next;
        }
        Ok((AddressMap::Bases(bases), extent))
    }
}

/// Where each address space is in the concatenated one.
pub(super) enum AddressMap {
    /// At a fixed distance, in order of appearance.
    Slots,
    /// One after the other.
    Bases(Vec<u64>),
    /// Touched regions only: the place of each.
    Compact(BTreeMap<(u32, u64), u64>),
}

impl AddressMap {
    /// The first byte in the concatenated space and the length there, or what was expected instead. The length is
    /// another one only where regions within the request were left out.
    pub fn place(&self, device: u32, offset: u64, length: u64) -> Result<(u64, u64), &'static str> {
        match self {
            AddressMap::Slots => {
                if offset + length > SLOT_BYTES {
                    return Err("addresses below 16 TiB, because a pipe cannot be read twice; store the trace first");
                }
                let base = u64::from(device).checked_mul(SLOT_BYTES).filter(|&base| base < 1 << 62);
                let base =
                    base.ok_or("fewer address spaces, because a pipe cannot be read twice; store the trace first")?;
                Ok((base + offset, length))
            }
            AddressMap::Bases(bases) => match bases.get(device as usize) {
                Some(base) => match base.checked_add(offset) {
                    Some(offset) => Ok((offset, length)),
                    None => Err("an address of the trace as it was when first read"),
                },
                None => Err("a device of the trace as it was when first read"),
            },
            AddressMap::Compact(_) if length == 0 => Ok((0, 0)),
            AddressMap::Compact(places) => {
                const MISSING: &str = "an address that a request of the trace touches";
                let end = offset + length;
                let (first, last) = (offset / ALIGNMENT, (end - 1) / ALIGNMENT);
                let Some(&from) = places.get(&(device, first)) else { return Err(MISSING) };
                let start = from * ALIGNMENT + offset % ALIGNMENT;
                if last - first <= USE_REGIONS {
                    // All of its regions were touched, and so stand side by side.
                    return Ok((start, length));
                }
                // Those of its regions that are there stand side by side as well.
                let Some((&(_, region), &place)) = places.range((device, first)..=(device, last)).next_back() else {
                    return Err(MISSING);
                };
                let until = if region == last { end - last * ALIGNMENT } else { ALIGNMENT };
                Ok((start, place * ALIGNMENT + until - start))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(names: &[&str]) -> Devices {
        let mut devices = Devices::new(None);
        for (at, name) in names.iter().enumerate() {
            assert_eq!(devices.number(name.as_bytes()), Some(at as u32));
        }
        devices
    }

    #[test]
    fn spaces_follow_each_other_by_name_and_share_no_page() {
        let devices = numbered(&["10", "2", "b", "a"]);
        let mut extents = Extents::new(false);
        for (device, end) in [(0, 4096), (1, 1), (2, 3 << 20), (3, 5)] {
            extents.add(device, 0, end);
        }
        let (map, extent) = extents.place(&devices).unwrap();
        // 2, 10, a, b.
        let bases: Vec<u64> = (0..4).map(|d| map.place(d, 0, 1).unwrap().0).collect();
        assert_eq!(bases, [1 << 20, 0, 3 << 20, 2 << 20]);
        assert_eq!(extent, 6 << 20);
    }

    #[test]
    fn compact_keeps_neighbours_together_and_leaves_gaps_out() {
        let devices = numbered(&["1", "0"]);
        let mut extents = Extents::new(true);
        extents.add(0, (7 << 40) + (1 << 20) - 4096, 8192);
        extents.add(1, 5 << 30, 512);
        let (map, extent) = extents.place(&devices).unwrap();
        assert_eq!(extent, 3 << 20);
        assert_eq!(map.place(1, 5 << 30, 512), Ok((0, 512)));
        assert_eq!(map.place(0, (7 << 40) + (1 << 20) - 4096, 8192), Ok(((2 << 20) - 4096, 8192)));
        assert_eq!(map.place(0, (7 << 40) + (1 << 20), 1), Ok((2 << 20, 1)));
        assert!(map.place(0, 0, 1).is_err());
    }

    #[test]
    fn what_deallocates_a_volume_takes_of_it_what_is_used_and_nothing_of_others() {
        const MIB: u64 = 1 << 20;
        let devices = numbered(&["0", "1", "2"]);
        let mut extents = Extents::new(true);
        // Volumes of 16 GiB. Of the first, two places are used; of the second, nothing; of the third, its beginning.
        let whole = 16 << 30;
        for (device, offset, length) in
            [(0, MIB, 4096), (0, 9_000 * MIB, 4096), (0, 0, whole), (1, 4096, whole), (2, 0, 4096), (2, 512, whole)]
        {
            extents.add(device, offset, length);
        }
        let (map, extent) = extents.place(&devices).unwrap();
        assert_eq!(extent, 5 * MIB);
        assert_eq!(map.place(0, 0, whole), Ok((0, 3 * MIB)));
        assert_eq!(map.place(0, 9_000 * MIB, 4096), Ok((2 * MIB, 4096)));
        assert_eq!(map.place(1, 4096, whole), Ok((3 * MIB + 4096, MIB - 4096)));
        assert_eq!(map.place(2, 512, whole), Ok((4 * MIB + 512, MIB - 512)));
        // One that ends amid a region that is used leaves the rest of it.
        assert_eq!(map.place(0, 0, 9_000 * MIB + 512), Ok((0, 2 * MIB + 512)));
    }

    #[test]
    fn a_pipe_has_slots() {
        assert_eq!(AddressMap::Slots.place(2, 5, 1), Ok(((2 << 44) + 5, 1)));
        assert!(AddressMap::Slots.place(0, SLOT_BYTES, 1).is_err());
        assert!(AddressMap::Slots.place(1 << 20, 0, 1).is_err());
    }

    #[test]
    fn a_filter_that_leaves_nothing_names_what_there_is() {
        let mut devices = Devices::new(Some("hm_7"));
        assert_eq!(devices.number(b"hm,0"), None);
        assert_eq!(devices.number(b"hm,7"), Some(0));
        assert_eq!(devices.left_out().unwrap(), "no request for device \"hm_7\"; the trace has hm_0");
    }
}
