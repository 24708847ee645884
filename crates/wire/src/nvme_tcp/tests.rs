use super::*;
use crate::nvme::Sqe;
use proptest::prelude::*;
use tidewater_base::checksum::crc32c;

fn rules(receiver: Receiver, framing: Framing) -> Rules {
    Rules { receiver, framing, capsule_data_max: 8_192, data_max: 1 << 17 }
}

/// Reads a whole PDU: its header, and its data.
fn read(bytes: &[u8], rules: &Rules) -> Result<(Pdu, Vec<u8>), Fatal> {
    let layout = CommonHeader::from_bytes(bytes.first_chunk().unwrap()).layout(rules)?;
    let pdu = Pdu::parse(&bytes[..layout.head()], &layout)?;
    let from = layout.head() + layout.padding;
    let data = bytes[from..from + layout.data as usize].to_vec();
    assert_eq!(layout.total(), bytes.len() as u64);
    if layout.data_digest {
        assert_eq!(bytes[from + data.len()..], crc32c(&data).to_le_bytes());
    }
    Ok((pdu, data))
}

fn every_pdu() -> Vec<(Receiver, Pdu, Vec<u8>)> {
    let (controller, host) = (Receiver::Controller, Receiver::Host);
    let data = DataPdu { cid: 0x0908, tag: 0x0B0A, offset: 0x0F0E_0D0C, len: 100, last: true, success: false };
    let term = TermReq { status: 6, information: 0xDEAD_BEEF };
    let ask = IcReq { alignment: 31, header_digest: true, data_digest: false, r2t_max_zero_based: 7 };
    let answer = IcResp { alignment: 3, header_digest: false, data_digest: true, data_max: 65_536 };
    vec![
        (controller, Pdu::IcReq(ask), vec![]),
        (host, Pdu::IcResp(answer), vec![]),
        (controller, Pdu::H2cTermReq(term), vec![1; 24]),
        (host, Pdu::C2hTermReq(term), vec![1; 128]),
        (controller, Pdu::CapsuleCmd(Sqe::flush(3)), vec![]),
        (controller, Pdu::CapsuleCmd(Sqe::write(3, 9, 0)), vec![7; 512]),
        (host, Pdu::CapsuleResp([5; 16]), vec![]),
        (controller, Pdu::H2cData(data), vec![9; 100]),
        (host, Pdu::C2hData(DataPdu { tag: 0, success: true, ..data }), vec![9; 100]),
        (host, Pdu::R2t(R2t { cid: 1, tag: 2, offset: 4_096, len: 8_192 }), vec![]),
    ]
}

#[test]
fn headers_are_laid_out_as_the_specification_says() {
    let framing = Framing { header_digest: true, data_digest: true, alignment: 15 };
    let data = DataPdu { cid: 0x0908, tag: 0x0B0A, offset: 0x0F0E_0D0C, len: 3, last: true, success: false };
    let mut bytes = Vec::new();
    Pdu::H2cData(data).append(&framing, b"abc", &mut bytes);
    // Type, flags (both digests, last), HLEN, PDO, PLEN.
    assert_eq!(bytes[..8], [0x06, 0b0111, 24, 64, 64 + 3 + 4, 0, 0, 0]);
    assert_eq!(bytes[8..24], [8, 9, 0xA, 0xB, 0xC, 0xD, 0xE, 0xF, 3, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes[24..28], crc32c(&bytes[..24]).to_le_bytes());
    assert!(bytes[28..64].iter().all(|&byte| byte == 0));
    assert_eq!(&bytes[64..67], b"abc");
    assert_eq!(bytes[67..], crc32c(b"abc").to_le_bytes());

    let mut bytes = Vec::new();
    let ask = IcReq { alignment: 2, header_digest: true, data_digest: true, r2t_max_zero_based: 0x0403_0201 };
    Pdu::IcReq(ask).append(&framing, &[], &mut bytes);
    assert_eq!(bytes[..16], [0, 0, 128, 0, 128, 0, 0, 0, 0, 0, 2, 3, 1, 2, 3, 4]);
    assert_eq!(bytes.len(), 128);

    let mut bytes = Vec::new();
    Pdu::C2hTermReq(Fatal::field(offset::HLEN).into()).append(&framing, &[0xEE; 8], &mut bytes);
    assert_eq!(bytes[..14], [3, 0, 24, 0, 32, 0, 0, 0, 1, 0, 2, 0, 0, 0]);
}

#[test]
fn every_pdu_comes_back_in_every_framing() {
    for alignment in 0..32 {
        for (header_digest, data_digest) in [(false, false), (true, false), (false, true), (true, true)] {
            let framing = Framing { header_digest, data_digest, alignment };
            for (receiver, pdu, data) in every_pdu() {
                let mut bytes = Vec::new();
                pdu.append(&framing, &data, &mut bytes);
                assert_eq!(read(&bytes, &rules(receiver, framing)), Ok((pdu, data)), "{framing:?}");
            }
        }
    }
}

#[test]
fn a_flipped_bit_in_a_digested_header_is_noticed() {
    let framing = Framing { header_digest: true, data_digest: false, alignment: 0 };
    for (receiver, pdu, data) in every_pdu() {
        if matches!(pdu, Pdu::IcReq(_) | Pdu::IcResp(_) | Pdu::H2cTermReq(_) | Pdu::C2hTermReq(_)) {
            continue;
        }
        let mut good = Vec::new();
        pdu.append(&framing, &data, &mut good);
        for bit in 0..pdu.header_bytes() * 8 {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let common = CommonHeader::from_bytes(bytes.first_chunk().unwrap());
            let Ok(layout) = common.layout(&rules(receiver, framing)) else { continue };
            // A flipped type may make a termination request of it, which ends the connection too.
            if layout.header_digest && layout.head() <= bytes.len() {
                let parsed = Pdu::parse(&bytes[..layout.head()], &layout);
                assert!(parsed.is_err(), "{pdu:?}, bit {bit}");
            }
        }
    }
}

#[test]
fn each_wrong_field_is_named() {
    let plain = Framing::default();
    let digested = Framing { header_digest: true, data_digest: true, alignment: 1 };
    let (controller, host) = (Receiver::Controller, Receiver::Host);
    let limit = Fatal::of(FatalStatus::LimitExceeded);
    // Type, flags, HLEN, PDO, PLEN.
    let cases = [
        (controller, plain, (kind::IC_RESP, 0, 128, 0, 128), Fatal::field(offset::KIND)),
        (controller, plain, (0x08, 0, 24, 0, 24), Fatal::field(offset::KIND)),
        (controller, plain, (0xFF, 0, 24, 0, 24), Fatal::field(offset::KIND)),
        (host, plain, (kind::H2C_DATA, 0, 24, 24, 28), Fatal::field(offset::KIND)),
        (controller, plain, (kind::IC_REQ, 0, 127, 0, 128), Fatal::field(offset::HLEN)),
        (controller, plain, (kind::IC_REQ, 0, 128, 0, 127), Fatal::field(offset::PLEN)),
        (controller, plain, (kind::IC_REQ, 0, 128, 0, 129), Fatal::field(offset::PLEN)),
        (controller, plain, (kind::H2C_TERM_REQ, 0, 24, 0, 23), Fatal::field(offset::PLEN)),
        (controller, plain, (kind::H2C_TERM_REQ, 0, 24, 0, 153), Fatal::field(offset::PLEN)),
        (controller, plain, (kind::CAPSULE_CMD, 0, 72, 0, 71), Fatal::field(offset::PLEN)),
        (controller, plain, (kind::CAPSULE_CMD, 1, 72, 0, 76), Fatal::field(offset::FLAGS)),
        (controller, plain, (kind::CAPSULE_CMD, 2, 72, 72, 80), Fatal::field(offset::FLAGS)),
        (controller, plain, (kind::CAPSULE_CMD, 0, 72, 71, 584), Fatal::field(offset::PDO)),
        (controller, plain, (kind::CAPSULE_CMD, 0, 72, 73, 584), Fatal::field(offset::PDO)),
        (controller, plain, (kind::CAPSULE_CMD, 0, 72, 252, 252), Fatal::field(offset::PLEN)),
        (controller, plain, (kind::CAPSULE_CMD, 0, 72, 72, 72 + 8_193), Fatal::field(offset::PLEN)),
        (controller, plain, (kind::CAPSULE_CMD, 0, 72, 72, u32::MAX), Fatal::field(offset::PLEN)),
        (controller, plain, (kind::H2C_DATA, 0, 24, 24, 24), Fatal::field(offset::PLEN)),
        (controller, plain, (kind::H2C_DATA, 0, 24, 24, 24 + (1 << 17) + 1), limit),
        (controller, digested, (kind::CAPSULE_CMD, 3, 72, 76, 584), Fatal::field(offset::PDO)),
        (controller, digested, (kind::CAPSULE_CMD, 3, 72, 80, 84), Fatal::field(offset::PLEN)),
        (controller, digested, (kind::CAPSULE_CMD, 1, 72, 80, 584), Fatal::field(offset::FLAGS)),
        (controller, digested, (kind::CAPSULE_CMD, 2, 72, 80, 584), Fatal::field(offset::FLAGS)),
        (host, plain, (kind::R2T, 0, 24, 0, 25), Fatal::field(offset::PLEN)),
        (host, plain, (kind::CAPSULE_RESP, 0, 24, 0, 28), Fatal::field(offset::PLEN)),
    ];
    for (receiver, framing, (kind, flags, hlen, pdo, plen), wrong) in cases {
        let common = CommonHeader { kind, flags, hlen, pdo, plen };
        assert_eq!(common.layout(&rules(receiver, framing)), Err(wrong), "{common:?}");
    }
    let good = CommonHeader { kind: kind::CAPSULE_CMD, flags: 0xF0, hlen: 72, pdo: 76, plen: 76 + 8_192 };
    let layout = good.layout(&rules(controller, plain)).unwrap();
    assert_eq!((layout.padding, layout.data, layout.total()), (4, 8_192, u64::from(good.plen)));
}

#[test]
fn contradictions_inside_a_header_are_named() {
    let check = |receiver, pdu: Pdu, data: &[u8], change: &dyn Fn(&mut Vec<u8>), wrong| {
        let mut bytes = Vec::new();
        pdu.append(&Framing::default(), data, &mut bytes);
        change(&mut bytes);
        assert_eq!(read(&bytes, &rules(receiver, Framing::default())), Err(wrong), "{pdu:?}");
    };
    let (controller, host) = (Receiver::Controller, Receiver::Host);
    let ask = Pdu::IcReq(IcReq { alignment: 0, header_digest: false, data_digest: false, r2t_max_zero_based: 0 });
    check(controller, ask, &[], &|bytes| bytes[9] = 1, Fatal::unsupported(offset::PFV));
    check(controller, ask, &[], &|bytes| bytes[10] = 32, Fatal::field(offset::PDA));
    let answer = Pdu::IcResp(IcResp { alignment: 0, header_digest: false, data_digest: false, data_max: 4_096 });
    check(host, answer, &[], &|bytes| bytes[13] = 0x0F, Fatal::field(offset::MAXIMUM));
    check(host, answer, &[], &|bytes| bytes[12] = 2, Fatal::field(offset::MAXIMUM));
    let data = DataPdu { cid: 1, tag: 1, offset: u32::MAX - 2, len: 2, last: false, success: false };
    check(controller, Pdu::H2cData(data), &[0; 2], &|bytes| bytes[16] = 3, Fatal::field(offset::LENGTH));
    let over = Fatal::of(FatalStatus::OutOfRange);
    check(controller, Pdu::H2cData(data), &[0; 2], &|bytes| bytes[12] = 0xFF, over);
    check(host, Pdu::C2hData(data), &[0; 2], &|bytes| bytes[1] = flag::SUCCESS, Fatal::field(offset::FLAGS));
    let r2t = R2t { cid: 0, tag: 0, offset: u32::MAX, len: 0 };
    check(host, Pdu::R2t(r2t), &[], &|_| (), Fatal::field(offset::LENGTH));
    check(host, Pdu::R2t(R2t { len: 1, ..r2t }), &[], &|_| (), over);
}

proptest! {
    #[test]
    fn any_bytes_parse_or_name_a_field(
        mut bytes in prop::collection::vec(any::<u8>(), 300),
        shape in prop::option::of((0..10_u8, 0..4_u8, 0..300_u32)),
        host in any::<bool>(),
        digests in 0..4_u8,
        alignment in 0..32_u8,
    ) {
        // Wholly random headers are nearly all refused by their first bytes: most get a plausible start.
        if let Some((kind, flags, plen)) = shape {
            let hlen = match kind { 0 | 1 => 128, 4 => 72, _ => 24 };
            let common = CommonHeader { kind, flags, hlen, pdo: bytes[3] & 0x7C, plen };
            bytes[..8].copy_from_slice(&common.to_bytes());
        }
        let framing = Framing { header_digest: digests & 1 != 0, data_digest: digests & 2 != 0, alignment };
        let rules = rules(if host { Receiver::Host } else { Receiver::Controller }, framing);
        let common = CommonHeader::from_bytes(bytes.first_chunk().unwrap());
        prop_assert_eq!(&common.to_bytes()[..], &bytes[..8]);
        match common.layout(&rules) {
            Err(fatal) => prop_assert!(fatal.information < 8),
            Ok(layout) => {
                prop_assert_eq!(layout.total(), u64::from(common.plen));
                prop_assert!(layout.head() + layout.padding <= PREFIX_BYTES_MAX);
                if let Ok(pdu) = Pdu::parse(&bytes[..layout.head()], &layout) {
                    // What was understood comes back, reserved bytes and padding aside.
                    let mut out = Vec::new();
                    pdu.append(&framing, &vec![0; layout.data as usize], &mut out);
                    prop_assert_eq!(read(&out, &rules).map(|(pdu, _)| pdu), Ok(pdu));
                }
            }
        }
    }
}
