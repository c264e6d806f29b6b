//! How long a sealed chunk can be at most, before it is written.

use crate::chunk::filter::filter_bytes;
use crate::chunk::header::{CONTENT_START, FRONT_BYTES, HEADER_BYTES};
use crate::chunk::page::{PAGE_BYTES, PAGE_STEP_BYTES, PAYLOAD_BYTES, page_bytes_for};
use crate::options::CHUNK_BLOCK_BYTES;

/// Length (5), records (5) and arrival (10) of an append in its table, and its part of a point.
const APPEND_BYTES_MAX: u64 = 21;
/// The start of a run's table, and a point.
const TABLE_BYTES_MAX: u64 = 8 + 28;
/// A row without record times: what is sealed has none.
const ROW_BYTES_MAX: u64 = 2 + 1 + 6 * 10 + 2 * 5 + 8;

/// The length of a chunk of so many runs and appends from the WAL and so much data, at most.
pub(crate) fn chunk_bytes_max(runs: u64, appends: u64, data_bytes: u64) -> u64 {
    let content_bytes = data_bytes + appends * APPEND_BYTES_MAX + runs * TABLE_BYTES_MAX;
    let checksums_bytes = 4 * (1 + content_bytes / CHUNK_BLOCK_BYTES);
    let filter_bytes = filter_bytes(u32::try_from(runs).unwrap_or(u32::MAX));
    let (row_bytes, lookup_bytes) = (runs * ROW_BYTES_MAX, filter_bytes + checksums_bytes);
    let ends_bytes = CONTENT_START + HEADER_BYTES as u64;
    ends_bytes + content_bytes + tail_bytes_max(row_bytes, lookup_bytes)
}

/// Bytes between the content and the footer: padding, and one or two copies of all pages.
fn tail_bytes_max(row_bytes: u64, lookup_bytes: u64) -> u64 {
    // Keys are padded to 32 bytes.
    let small = [row_bytes, 32 + lookup_bytes].map(|bytes| page_bytes_for(bytes as usize));
    let small_bytes: usize = small.into_iter().sum();
    if small_bytes <= FRONT_BYTES {
        return (PAGE_STEP_BYTES + small_bytes) as u64;
    }
    let payload_bytes = PAYLOAD_BYTES as u64;
    // A row that does not fit begins a page.
    let row_pages = row_bytes.div_ceil(payload_bytes - ROW_BYTES_MAX);
    let index_bytes = row_pages * 16 + 32 + lookup_bytes;
    let pages = 2 * (row_pages + index_bytes.div_ceil(payload_bytes));
    (1 + pages) * PAGE_BYTES as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::builder::tests::{build, wanted};

    #[test]
    fn no_chunk_is_longer_than_it_was_said_to_be_and_few_are_much_shorter() {
        for count in [1, 10, 40, 200, 5000] {
            let runs = wanted(count, count);
            let appends: u64 = runs.iter().map(|run| run.data.len().div_ceil(7) as u64).sum();
            let data_bytes = runs.iter().map(|run| run.data.len() as u64).sum();
            let (length, max) =
                (build(&runs).len() as u64, chunk_bytes_max(count, appends, data_bytes));
            assert!(length <= max && max < 3 * length, "{length} of {max} for {count} runs");
        }
    }
}
