use super::*;
use crate::configuration::Configuration;
use crate::entry_bytes::{KIND_NOOP, entry_of_command};
use crate::identity::{NodeNumber, ReplicaId};
use crate::message::{Body, EntryBytes, GroupMessage, LogPosition, SentEntry, SnapshotPoint};
use model::{EntryIndex, GroupId, Term};
use proptest::prelude::*;

fn id(node: u16) -> ReplicaId {
    ReplicaId::new(NodeNumber::new(node), 1)
}

fn message(body: Body) -> Section {
    let message = GroupMessage { from: id(1), to: id(2), term: Term::new(5), body };
    Section::Message { group: GroupId::new(9), message }
}

fn append(command_bytes: usize) -> Section {
    let entries = (8..10).map(|index| {
        let at = LogPosition::new(index, 5);
        let bytes = entry_of_command(at, Timestamp::new(3), KIND_NOOP, &vec![7; command_bytes]);
        SentEntry { at, is_change: false, bytes: EntryBytes::Sent(bytes) }
    });
    let (previous, commit) = (LogPosition::new(7, 4), EntryIndex::new(6));
    message(Body::Append { previous, commit, entries: entries.collect() })
}

/// One section of each kind.
fn every_kind() -> Vec<Section> {
    let (at, commit) = (LogPosition::new(7, 4), EntryIndex::new(6));
    let (group, committed) = (GroupId::new(9), LogPosition::new(6, 4));
    let payload = Bytes::from_static(b"opaque");
    let configuration = Configuration::of(&[id(1), id(2), id(3)]);
    let mut all: Vec<Section> = [
        Body::Ask { is_pre: true, is_transfer: false, last: at, commit: committed },
        Body::Ask { is_pre: false, is_transfer: true, last: at, commit: committed },
        Body::Vote { is_pre: true, is_granted: false, commit: committed },
        Body::Vote { is_pre: false, is_granted: true, commit: LogPosition::default() },
        Body::Appended { index: at.index, commit },
        Body::Rejected { index: at.index, hint: committed, commit },
        Body::Heartbeat { commit, read: 77 },
        Body::Alive { commit, read: 77 },
        Body::Snapshot(SnapshotPoint { last: at, configuration }),
        Body::Campaign,
        Body::Empty,
        Body::Committed { commit },
    ]
    .map(message)
    .into();
    all.push(append(100));
    all.push(Section::Forward { group, request: 3, settled_below: 2, payload: payload.clone() });
    all.push(Section::Answer { request: 3, payload: payload.clone() });
    all.push(Section::Report { payload });
    all.push(Section::Leave { opening: 7, is_done: true });
    all.push(Section::Left { opening: 7, shard: 1, shard_count: 3 });
    all.push(Section::Removed { number: NodeNumber::new(7) });
    all.push(Section::Barrier { group, number: 4 });
    let at = Confirmation::At(EntryIndex::new(12));
    for confirmation in [at, Confirmation::NotLeader] {
        all.push(Section::Confirmed { group, number: 4, confirmation });
    }
    all.extend(every_transfer().map(|transfer| Section::Transfer { group, transfer }));
    all
}

fn every_transfer() -> impl Iterator<Item = Transfer> {
    let (position, bytes) = (70_000, Bytes::from_static(b"piece"));
    let ends = [TransferEnd::Whole, TransferEnd::Busy, TransferEnd::Lost];
    let says = [
        TransferSays::Offer { is_begun: true, position },
        TransferSays::Piece { position, first_bytes: 88, bytes },
        TransferSays::Got { position, is_asked: true },
    ];
    let says = says.into_iter().chain(ends.map(TransferSays::End));
    says.map(|says| Transfer { from: id(1), to: id(2), number: 6, says })
}

/// The frames that an outbox makes of sections.
fn frames(sections: &[Section]) -> Vec<Bytes> {
    let mut outbox = Outbox::new();
    sections.iter().for_each(|section| outbox.push(section.clone()));
    let mut frames = Vec::new();
    loop {
        let mut out = Vec::new();
        if !outbox.next_frame(Timestamp::new(1_234), &mut out) {
            assert_eq!(outbox.waiting_bytes(), 0, "what was sent does not wait");
            return frames;
        }
        assert_eq!(Frame::length(&out), Ok(Some(out.len())));
        frames.push(out.into());
    }
}

/// The sections of frames, put together again.
fn received(frames: &[Bytes]) -> Vec<Section> {
    let mut parts = Parts::default();
    let mut sections = Vec::new();
    for frame in frames {
        for section in Frame::decode(frame).expect("a frame that was sent is received").sections {
            match section {
                Section::Part { .. } => sections.extend(parts.take(&section).unwrap()),
                section => sections.push(section),
            }
        }
    }
    sections
}

#[test]
fn every_kind_of_section_comes_back() {
    let frames = frames(&every_kind());
    assert_eq!(frames.len(), 1);
    assert_eq!(Frame::decode(&frames[0]).unwrap().at, Timestamp::new(1_234));
    assert_eq!(received(&frames), every_kind());
}

#[test]
fn a_frame_has_golden_bytes() {
    let heartbeat = message(Body::Heartbeat { commit: EntryIndex::new(6), read: 77 });
    let frame = &frames(&[heartbeat])[0];
    let mut golden =
        vec![88, 0, 0, 0, 0, 0, 0, 0, 0xd2, 4, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    golden.extend([9, 0, 8, 0, 0, 0, 0, 0]);
    golden.extend([1, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 2, 0, 5, 0, 0, 0, 0, 0, 0, 0]);
    golden.extend([0; 16]);
    golden.extend([6, 0, 0, 0, 0, 0, 0, 0, 77, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(frame[..4], golden[..4]);
    assert_eq!(frame[8..], golden[8..]);
    let crc = crc32c::crc32c_append(crc32c::crc32c(&golden[..4]), &golden[8..]);
    assert_eq!(frame[4..8], crc.to_le_bytes());
}

#[test]
fn a_transfer_has_golden_bytes() {
    let (group, mut out) = (GroupId::new(9), Vec::new());
    let piece = every_transfer().nth(1).unwrap();
    let piece = Section::Transfer { group, transfer: piece };
    assert_eq!(piece.class(), crate::Class::Bulk);
    piece.encode(&mut out);
    let mut golden = vec![9, 0, 38, 0, 5, 0, 0, 0];
    golden.extend([1, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    golden.extend([0x70, 0x11, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    golden.extend([88, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0]);
    golden.extend(b"piece");
    assert_eq!(out, golden);
    let kinds = every_transfer().map(|transfer| {
        let mut out = Vec::new();
        Section::Transfer { group, transfer }.encode(&mut out);
        (out[2], out[3], out[32])
    });
    let golden = [(37, 1, 0x70), (38, 0, 0x70), (39, 1, 0x70), (40, 0, 1), (40, 0, 2), (40, 0, 3)];
    assert_eq!(kinds.collect::<Vec<_>>(), golden);
}

#[test]
fn a_report_has_golden_bytes() {
    let mut out = Vec::new();
    Section::Report { payload: Bytes::from_static(b"opaque") }.encode(&mut out);
    let mut golden = vec![0, 0, 41, 0, 6, 0, 0, 0];
    golden.extend([0; 56]);
    golden.extend(b"opaque");
    assert_eq!(out, golden);
}

#[test]
fn pieces_without_bytes_or_with_too_many_are_refused() {
    for length in [0, PIECE_BYTES_MAX + 1] {
        let says =
            TransferSays::Piece { position: 0, first_bytes: 1, bytes: vec![7; length].into() };
        let transfer = Transfer { from: id(1), to: id(2), number: 6, says };
        let frame = frames(&[Section::Transfer { group: GroupId::new(9), transfer }]).remove(0);
        assert!(matches!(Frame::decode(&frame), Err(FrameError::Content { .. })), "{length}");
    }
}

#[test]
fn a_large_section_goes_in_parts_and_others_pass_it() {
    let beat = |read| message(Body::Heartbeat { commit: EntryIndex::new(6), read });
    let other = Section::Barrier { group: GroupId::new(3), number: 1 };
    let sections = [append(1 << 20), append(10), beat(1), other.clone()];
    let frames = frames(&sections);
    assert!(frames.len() > 16 && frames.iter().all(|frame| frame.len() <= FRAME_BYTES_MAX));
    let order = [beat(1), other, append(1 << 20), append(10)];
    assert_eq!(received(&frames), order);
}

#[test]
fn a_part_has_room_beside_small_sections_of_any_length() {
    let large = append(1 << 20);
    for bytes in (1 << 17) - 400..(1 << 17) + 100 {
        let answer = |bytes: usize| Section::Answer { request: 1, payload: vec![7; bytes].into() };
        let frames = frames(&[answer(1000), answer(bytes - 1128), large.clone()]);
        assert!(frames.iter().all(|frame| frame.len() <= FRAME_BYTES_MAX), "{bytes}");
        assert_eq!(received(&frames).len(), 3, "{bytes}");
    }
}

/// A forwarded request of a group, with a payload of so many bytes.
fn forward(group: u16, request: u64, bytes: usize) -> Section {
    let payload = vec![7; bytes].into();
    Section::Forward { group: GroupId::new(group), request, settled_below: 1, payload }
}

#[test]
fn a_request_does_not_overtake_an_earlier_one_of_its_group_however_large_they_are() {
    let sizes = [10, 1 << 20, 10, 120 << 10, 120 << 10, 300 << 10, 10, 1 << 10, 140 << 10];
    let all = (1..).zip(sizes.into_iter().cycle().take(40));
    let of_group = |group: u16| move |section: &Section| matches!(section, Section::Forward { group: of, .. } if *of == GroupId::new(group));
    let sections: Vec<Section> =
        all.map(|(request, bytes)| forward(request as u16 % 3, request, bytes)).collect();
    let received = received(&frames(&sections));
    assert_ne!(received, sections, "those of other groups pass");
    for group in 0..3 {
        let of = |all: &[Section]| -> Vec<Section> {
            all.iter().filter(|it| of_group(group)(it)).cloned().collect()
        };
        assert_eq!(of(&received), of(&sections));
    }
}

#[test]
fn the_end_of_a_large_request_waits_for_small_ones_that_came_before() {
    // More small bytes than go beside the parts, so that the large one would be first.
    let mut sections: Vec<Section> = (0..40).map(|it| forward(1, it, 100 << 10)).collect();
    sections.push(forward(1, 40, 150 << 10));
    assert_eq!(received(&frames(&sections)), sections);
}

#[test]
fn parts_out_of_order_are_refused() {
    let frames = frames(&[append(1 << 20)]);
    let mut sections = frames.iter().map(|frame| Frame::decode(frame).unwrap().sections.remove(0));
    let (first, second) = (sections.next().unwrap(), sections.next().unwrap());
    let mut parts = Parts::default();
    assert!(parts.take(&second).is_err());
    assert_eq!(parts.take(&first), Ok(None));
    assert!(parts.take(&first).is_err());
    assert_eq!(parts.take(&second), Ok(None));
    assert!(parts.held_bytes() > 100_000);
}

#[test]
fn a_promise_of_too_many_bytes_takes_no_memory() {
    let bytes = Bytes::from_static(b"x");
    let part = Section::Part { number: 1, position: 0, total: 1 << 40, bytes };
    assert!(Parts::default().take(&part).is_err());
}

#[test]
fn each_flipped_bit_outside_of_payloads_is_found() {
    let frame = frames(&every_kind()).remove(0);
    let payload = frame.windows(100).position(|window| window == [7; 100]).unwrap();
    for bit in 0..frame.len() * 8 {
        let mut flipped = frame.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let is_payload =
            [payload, payload + 156].iter().any(|start| (*start..start + 100).contains(&(bit / 8)));
        let decoded = Frame::decode(&flipped.into());
        assert_eq!(decoded.is_ok(), is_payload, "bit {bit}");
    }
}

#[test]
fn two_sections_that_changed_places_are_found() {
    let frame = frames(&every_kind()[..2]).remove(0);
    let mut swapped = frame.to_vec();
    let (front, back) = swapped[FRAME_HEADER_BYTES..].split_at_mut(fields::SECTION_HEADER_BYTES);
    front.swap_with_slice(back);
    assert_eq!(Frame::decode(&swapped.into()), Err(FrameError::Checksum));
}

#[test]
fn lengths_that_no_frame_has_are_refused() {
    assert_eq!(Frame::length(&[1, 0, 0]), Ok(None));
    assert_eq!(Frame::length(&[23, 0, 0, 0]), Err(FrameError::Length { bytes: 23 }));
    assert!(Frame::length(&(FRAME_BYTES_MAX as u32 + 1).to_le_bytes()).is_err());
    assert!(Frame::decode(&Bytes::from_static(&[24, 0, 0, 0])).is_err());
}

proptest! {
    #[test]
    fn any_bytes_are_a_frame_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut bytes = bytes;
        if bytes.len() >= FRAME_HEADER_BYTES {
            let length = bytes.len() as u32;
            bytes[..4].copy_from_slice(&length.to_le_bytes());
        }
        let bytes = Bytes::from(bytes);
        prop_assert!(Frame::decode(&bytes).is_err() || bytes.len() == FRAME_HEADER_BYTES);
    }
}
