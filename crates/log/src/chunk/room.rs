//! How long a sealed chunk can be at most, before it is written.

use crate::chunk::filter::filter_bytes;
use crate::chunk::header::{CONTENT_START, FRONT_BYTES, HEADER_BYTES};
use crate::chunk::page::{PAGE_BYTES, PAGE_STEP_BYTES, PAYLOAD_BYTES, page_bytes_for};
use crate::chunk::row::ROW_BYTES_MAX;
use crate::hot_index::HotTotals;
use crate::options::CHUNK_BLOCK_BYTES;

/// What appends, tables and rows take at most.
struct EachMax {
    append_bytes: u64,
    table_bytes: u64,
    row_bytes: u64,
}

/// Length (5), records (5) and arrival (10) of an append in its table, and its part of a point. The start of a run's
/// table, and a point.
const WITHOUT_TIMES: EachMax =
    EachMax { append_bytes: 21, table_bytes: 8 + 28, row_bytes: 2 + 1 + 6 * 10 + 2 * 5 + 8 };

/// A record time takes ten bytes, and eight in a point.
const WITH_TIMES: EachMax =
    EachMax { append_bytes: 31, table_bytes: 8 + 36, row_bytes: ROW_BYTES_MAX as u64 };

/// The length of a chunk of so much from the WAL, at most.
pub(crate) fn chunk_bytes_max(hot: &HotTotals, has_times: bool) -> u64 {
    let each = if has_times { WITH_TIMES } else { WITHOUT_TIMES };
    let tables_bytes = hot.appends * each.append_bytes + hot.streams * each.table_bytes;
    let content_bytes = hot.bytes + tables_bytes;
    let checksums_bytes = 4 * (1 + content_bytes / CHUNK_BLOCK_BYTES);
    let filter_bytes = filter_bytes(u32::try_from(hot.streams).unwrap_or(u32::MAX));
    let lookup_bytes = filter_bytes + checksums_bytes;
    let ends_bytes = CONTENT_START + HEADER_BYTES as u64;
    ends_bytes + content_bytes + tail_bytes_max((hot.streams, each.row_bytes), lookup_bytes)
}

/// Bytes between the content and the footer: padding, and one or two copies of all pages.
fn tail_bytes_max((rows, row_bytes_max): (u64, u64), lookup_bytes: u64) -> u64 {
    let row_bytes = rows * row_bytes_max;
    // Keys are padded to 32 bytes.
    let small = [row_bytes, 32 + lookup_bytes].map(|bytes| page_bytes_for(bytes as usize));
    let small_bytes: usize = small.into_iter().sum();
    if small_bytes <= FRONT_BYTES {
        return (PAGE_STEP_BYTES + small_bytes) as u64;
    }
    let payload_bytes = PAYLOAD_BYTES as u64;
    // A row that does not fit begins a page.
    let row_pages = row_bytes.div_ceil(payload_bytes - row_bytes_max);
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
        for (count, has_times) in
            [1, 10, 40, 200, 5000].into_iter().zip([true, false].into_iter().cycle())
        {
            let mut runs = wanted(count, count);
            runs.iter_mut().for_each(|run| run.has_times &= has_times);
            let hot = HotTotals {
                streams: count,
                appends: runs.iter().map(|run| run.data.len().div_ceil(7) as u64).sum(),
                bytes: runs.iter().map(|run| run.data.len() as u64).sum(),
            };
            let (length, max) = (build(&runs).len() as u64, chunk_bytes_max(&hot, has_times));
            // Around 40 runs the pages may just not fit behind the header.
            let is_near = max < (3 + 2 * u64::from(has_times)) * length;
            assert!(length <= max && is_near, "{length} of {max} for {count} runs");
        }
    }
}
