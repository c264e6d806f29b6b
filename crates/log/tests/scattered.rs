//! Reads of a stream whose appends are far apart in the WAL: bounded in what they cost.

use crate::support::{Node, key};
use env::MemoryDisk;
use model::ByteOffset;
use thalweg_log::LogOptions;

#[test]
fn short_appends_that_are_far_apart_are_read_for_a_bounded_price() {
    const COUNT: u32 = 500;
    let (thin, thick) = (key(0, 1), key(0, 2));
    // All reads are of the file.
    let options = LogOptions { group_count: 1, recent_bytes_max: 0, ..LogOptions::default() };
    let mut node = Node::open_with(&MemoryDisk::new(), 1, options).unwrap();
    for number in 0..COUNT {
        node.append(thin, &number.to_le_bytes()).unwrap();
        node.append(thick, &[7; 6_000]).unwrap();
        node.commit().unwrap();
    }
    let window = 64 << 10;
    let expected: Vec<u8> = (0..COUNT).flat_map(u32::to_le_bytes).collect();
    let mut found = Vec::new();
    let shard = node.shard(thin.group);
    while found.len() < expected.len() {
        let from = ByteOffset::new(found.len() as u64);
        let piece = shard.read(thin, from, window).unwrap().to_bytes().unwrap();
        // Four windows' worth of the file hold so many of its entries, which are 6,000 bytes and more apart.
        assert!((4..=4 * (4 * window / 6_000 + 1)).contains(&piece.len()), "{}", piece.len());
        found.extend_from_slice(&piece);
    }
    assert_eq!(found, expected);
    let read = |key, bytes| shard.read(key, ByteOffset::ZERO, bytes).unwrap().to_bytes().unwrap();
    assert_eq!(read(thin, 60), expected[..60], "a short answer comes at once");
    let whole = read(thick, window);
    assert!(whole.len() > window - 6_000, "long ones fill their window: {}", whole.len());
}
