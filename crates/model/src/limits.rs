//! Hard limits, each with its reason. Settings may lower what a server allows, never raise it
//! above these.

/// Longest stream path: long enough for nested names, short enough for every proxy's URL limit.
pub const PATH_BYTES_MAX: usize = 1024;

/// Longest content type: RFC 6838 names have at most 127 + 1 + 127 characters, the rest is for
/// parameters.
pub const CONTENT_TYPE_BYTES_MAX: usize = 512;

/// Longest `Producer-Id`: a UUID or a host name with room to spare. It is kept per stream.
pub const PRODUCER_ID_BYTES_MAX: usize = 256;

/// Longest `Stream-Seq`: one is kept per stream.
pub const STREAM_SEQ_BYTES_MAX: usize = 256;

/// Most producers that any setting may let a stream remember: a new one looks through all of them for the one
/// that makes room.
pub const PRODUCERS_PER_STREAM_MAX: u32 = 1 << 16;

/// Producers remembered per stream when nothing is set.
pub const PRODUCERS_PER_STREAM_DEFAULT: u32 = 4096;

/// Largest body that any setting may allow: an append is one log entry and one memory copy.
pub const APPEND_BYTES_MAX: usize = 1 << 30;

/// Body limit when nothing is set.
pub const APPEND_BYTES_DEFAULT: usize = 64 << 20;

/// Most groups in one data directory: group ids are 16 bits and each costs a checkpoint file.
pub const GROUPS_MAX: u16 = 4096;

/// Longest chain of forks of forks; each level costs every deeper one a span of its lineage.
pub const FORK_DEPTH_MAX: usize = 256;

/// Largest producer epoch and sequence number, 2^53 - 1. Source: PROTOCOL §5.2.1.
pub const PRODUCER_NUMBER_MAX: u64 = (1 << 53) - 1;

/// Largest position of a byte and number of a record, 2^53. No disk holds as much. A million of the largest appends
/// behind it still have offsets that can be rendered.
pub const POSITION_MAX: u64 = 1 << 53;

/// A catch-up answer ends at the next multiple of this stream offset. JSON answers end with the append
/// that holds it. So every reader gets the same cacheable pieces.
pub const ANSWER_BOUNDARY_BYTES: u64 = 4 << 20;

/// Bytes of one body window: what one reader's answer holds in memory at a time.
pub const READ_WINDOW_BYTES_MAX: usize = 64 << 10;

/// The same of a range of a file, which is sent without a copy.
pub const FILE_WINDOW_BYTES_MAX: usize = 128 << 10;

const _: () = assert!(READ_WINDOW_BYTES_MAX <= FILE_WINDOW_BYTES_MAX);
const _: () = assert!(APPEND_BYTES_DEFAULT <= APPEND_BYTES_MAX);
const _: () = assert!(PRODUCERS_PER_STREAM_DEFAULT <= PRODUCERS_PER_STREAM_MAX);
const _: () = assert!(READ_WINDOW_BYTES_MAX as u64 <= ANSWER_BOUNDARY_BYTES);
