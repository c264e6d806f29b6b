//! A chunk in memory: whatever its bytes are, a check of it gives an answer.

use super::forge;

/// Its lineage is 77: `crates/log/src/chunk/header.rs`.
const CHUNK: &[u8] = include_bytes!("../../../../crates/log/testdata/chunk.golden");
const LINEAGE: u64 = 77;

/// Input: whether checksums are made right afterwards (1), then edits: position (2) and bits to
/// flip (1).
pub fn run(data: &[u8]) {
    let [is_forged, edits @ ..] = data else { return };
    let mut chunk = CHUNK.to_vec();
    for edit in edits.chunks_exact(3) {
        let at = usize::from(u16::from_le_bytes([edit[0], edit[1]]));
        if let Some(byte) = chunk.get_mut(at) {
            *byte ^= edit[2];
        }
    }
    if is_forged & 1 != 0 {
        forge::seal_pages(CHUNK, LINEAGE, &mut chunk);
    }
    let intact = log::check_chunk(CHUNK, LINEAGE).expect("the golden file is intact");
    let Some(check) = log::check_chunk(&chunk, LINEAGE) else { return };
    if is_forged & 1 == 0 {
        assert!(check.intact_runs <= intact.intact_runs);
        assert!(check.intact_bytes <= intact.intact_bytes);
    }
}

/// No edit, one in each part, and a forged one.
pub fn seeds() -> Vec<Vec<u8>> {
    let at = |flag: u8, position: u16, value: u8| {
        let [low, high] = position.to_le_bytes();
        vec![flag, low, high, value]
    };
    let places = [0, 56, 72, 112, 128, 128 + 28, 256 + 28, 4096, 4300, 4352, 4352 + 28];
    let edits = places.iter().flat_map(|&place| [at(0, place, 1), at(1, place, 1)]);
    std::iter::once(vec![0]).chain(edits).collect()
}
