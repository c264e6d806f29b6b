use super::*;
use crate::codec::seal_header;

fn batch_header() -> BatchHeader {
    BatchHeader {
        wal: 3,
        segment: 5,
        seq: 9,
        durable: 8,
        epoch: 2,
        payload_bytes: 100,
        entry_count: 1,
        list_bytes: 0,
        note_count: 0,
    }
}

fn entry_header() -> EntryHeader {
    EntryHeader {
        index: 7,
        term: 1,
        subject: 4,
        at: 1_700_000_000_000,
        position: 128,
        command_bytes: 1,
        data_bytes: 2,
        command_crc: crc32c::crc32c(b"c"),
        data_crc: crc32c::crc32c(b"dd"),
        group: 6,
        kind: 2,
        record: 0,
        installs: 0,
    }
}

fn unsealed<T>(value: T, is_repaired: bool) -> Unsealed<T> {
    Unsealed { value, is_repaired }
}

fn seeds() -> Seeds {
    Seeds::new(77, 3)
}

const PLACE: BatchPlace = BatchPlace { store: 77, segment: 5, seq: 9 };

fn sealed() -> [u8; ENTRY_HEADER_BYTES] {
    let mut bytes = entry_header().encode();
    seal_entry_header(&mut bytes, (&seeds(), &batch_header()), 0, 128);
    bytes
}

#[test]
fn the_bytes_of_a_batch_never_change() {
    let mut bytes = batch_header().encode(&seeds()).to_vec();
    bytes.extend(sealed());
    bytes.extend(b"cdd");
    assert_eq!(bytes, include_bytes!("../../../testdata/batch.golden"));
}

#[test]
fn an_entry_header_says_how_many_snapshots_came_before_it() {
    let header = EntryHeader { installs: 0x0102, ..entry_header() };
    let mut bytes = header.encode();
    assert_eq!(bytes[56..60], [2, 1, 0, 0]);
    assert_eq!(EntryHeader::decode(&bytes), header);
    set_installs(&mut bytes, 0x0304);
    assert_eq!(EntryHeader::decode(&bytes), EntryHeader { installs: 0x0304, ..header });
}

#[test]
fn headers_are_valid_only_where_they_were_written() {
    let bytes = batch_header().encode(&seeds());
    assert_eq!(BatchHeader::decode(&bytes, 77, 3, 5), Some(unsealed(batch_header(), false)));
    assert_eq!(BatchHeader::decode(&bytes, 78, 3, 5), None);
    assert_eq!(BatchHeader::decode(&bytes, 77, 2, 5), None);
    assert_eq!(BatchHeader::decode(&bytes, 77, 3, 6), None);

    let entry = EntryHeader::decode_sealed(&sealed(), PLACE, 0);
    assert_eq!(entry, Some(unsealed(entry_header(), false)));
    assert_eq!(EntryHeader::decode_sealed(&sealed(), PLACE, 1), None);
    let later = BatchPlace { seq: 10, ..PLACE };
    assert_eq!(EntryHeader::decode_sealed(&sealed(), later, 0), None);
}

#[test]
fn every_flipped_bit_of_a_header_is_put_right() {
    for bit in 0..BATCH_HEADER_BYTES * 8 {
        let mut bytes = batch_header().encode(&seeds());
        bytes[bit / 8] ^= 1 << (bit % 8);
        let batch = BatchHeader::decode(&bytes, 77, 3, 5);
        assert_eq!(batch, Some(unsealed(batch_header(), true)), "bit {bit}");
        // Stale ones stay stale.
        assert_eq!(BatchHeader::decode(&bytes, 77, 3, 4), None, "bit {bit}");
        let mut bytes = sealed();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let entry = EntryHeader::decode_sealed(&bytes, PLACE, 0);
        assert_eq!(entry, Some(unsealed(entry_header(), true)), "bit {bit}");
    }
}

#[test]
fn an_intact_batch_header_of_another_kind_or_version_is_refused() {
    for (at, value) in [(0, b'x'), (4, 2)] {
        let mut bytes = batch_header().encode(&seeds());
        bytes[at] = value;
        seal_header(&mut bytes, &77_u64.to_le_bytes());
        assert_eq!(BatchHeader::decode(&bytes, 77, 3, 5), None, "changed at {at}");
    }
}

#[test]
fn numbers_that_cannot_be_counted_on_from_are_refused() {
    for (seq, epoch) in [(u64::MAX, 1), (9, u64::MAX)] {
        let bytes = BatchHeader { seq, epoch, ..batch_header() }.encode(&seeds());
        assert_eq!(BatchHeader::decode(&bytes, 77, 3, 5), None);
    }
    let mut bytes = EntryHeader { index: u64::MAX, ..entry_header() }.encode();
    seal_entry_header(&mut bytes, (&seeds(), &batch_header()), 0, 128);
    assert_eq!(EntryHeader::decode_sealed(&bytes, PLACE, 0), None);
    assert_eq!(crate::wal::segment::parse_segment_name("ffffffffffffffff.wal"), None);
}

#[test]
fn a_batch_takes_whole_blocks() {
    assert_eq!(batch_bytes(0, 0), 4096);
    assert_eq!(batch_bytes(1, 4096 - 128), 4096);
    assert_eq!(batch_bytes(1, 4096 - 127), 8192);
}

#[test]
fn a_list_says_what_the_headers_of_a_batch_said_and_no_changed_byte_passes() {
    let header = BatchHeader { entry_count: 2, list_bytes: 7, ..batch_header() };
    let mut list = b"an older list".to_vec();
    begin_list(&mut list, &header, 8192);
    push_listed(&mut list, &entry_header());
    push_listed(&mut list, &EntryHeader::default());
    seal_list(&mut list, &seeds());
    let found = BatchList::decode(&list, 77, 3).unwrap();
    // A list does not say which are notes.
    assert_eq!((found.header, found.position), (BatchHeader { note_count: 2, ..header }, 8192));
    let EntryHeader { index, subject, group, kind, data_bytes, .. } = entry_header();
    let known = EntryHeader { index, subject, group, kind, data_bytes, ..EntryHeader::default() };
    assert_eq!(found.entry(0), Some(&known));
    assert_eq!((found.entry(1), found.entry(2)), (None, None), "one was lost, and there are two");
    assert!(BatchList::decode(&list, 78, 3).is_none(), "of another store");
    assert!(BatchList::decode(&list, 77, 2).is_none(), "of another WAL");
    for byte in 0..list.len() {
        let mut changed = list.clone();
        changed[byte] ^= 0x40;
        assert!(BatchList::decode(&changed, 77, 3).is_none(), "byte {byte}");
        assert!(BatchList::decode(&list[..byte], 77, 3).is_none(), "of {byte} bytes");
    }
}

#[test]
fn a_batch_is_listed_if_one_block_may_hold_its_headers_and_their_copy() {
    let needs = |entry_count: u32, payload_bytes: u32| {
        BatchHeader { entry_count, payload_bytes, ..batch_header() }.needs_list()
    };
    assert!(needs(0, 0) && needs(1, 10), "one block");
    assert!(!needs(1, 5000), "the copy is in the second one");
    assert!(needs(1, 4096 - 128) && needs(1, 8192 - 200), "there is no room for a copy");
    assert!(needs(63, 5000) && needs(200, 0), "never");
}

fn note() -> (Note, u64) {
    (Note { term: Term::new(5), vote: 0x0001_0000_0000_0002, commit: EntryIndex::new(7) }, 9)
}

/// A batch with an entry and a note.
fn noted_batch() -> Vec<u8> {
    let header = BatchHeader { entry_count: 2, note_count: 1, payload_bytes: 3, ..batch_header() };
    let mut bytes = header.encode(&seeds()).to_vec();
    for (number, entry, position) in [
        (0, entry_header(), 192),
        (1, EntryHeader::note(GroupId::new(6), &note().0, note().1), 195),
    ] {
        let mut entry = entry.encode();
        seal_entry_header(&mut entry, (&seeds(), &header), number, position);
        bytes.extend(entry);
    }
    bytes.extend(b"cdd");
    bytes
}

#[test]
fn the_bytes_of_a_note_never_change() {
    let bytes = noted_batch();
    assert_eq!(bytes, include_bytes!("../../../testdata/batch-note.golden"));
    let found = EntryHeader::decode_sealed(&bytes[128..], PLACE, 1).unwrap().value;
    assert_eq!((found.as_note(), found.group), (Some(note()), 6));
    let entry = EntryHeader::decode_sealed(&bytes[64..], PLACE, 0).unwrap().value;
    assert_eq!((entry.as_note(), entry.is_note()), (None, false));
}

#[test]
fn records_that_are_not_known_are_a_newer_versions() {
    let seed = PLACE.seed(1);
    for (at, value) in [(55, 2), (55, 255), (36, 1), (40, 1), (58, 1)] {
        let mut bytes = *noted_batch()[128..].first_chunk::<64>().unwrap();
        bytes[at] = value;
        assert_eq!(EntryHeader::newer_in(&bytes, PLACE, 1), None, "an unsealed one is damaged");
        seal_header(&mut bytes, &seed);
        assert!(EntryHeader::newer_in(&bytes, PLACE, 1).is_some(), "byte {at}");
        assert_eq!(EntryHeader::decode_sealed(&bytes, PLACE, 1), None, "byte {at}");
    }
    let intact = *noted_batch()[128..].first_chunk::<64>().unwrap();
    assert_eq!(EntryHeader::newer_in(&intact, PLACE, 1), None);
}

#[test]
fn a_batch_has_no_more_notes_than_entries() {
    let bytes = BatchHeader { note_count: 2, ..batch_header() }.encode(&seeds());
    assert_eq!(BatchHeader::decode(&bytes, 77, 3, 5), None);
}
