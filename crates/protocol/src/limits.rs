//! Bounds of everything that a client can make grow, each with its reason.

/// Longest request head. Browsers send up to about 4 KiB, cookies and tokens of proxies double it.
pub const HEAD_BYTES_MAX: usize = 32 << 10;

/// Most header fields of one request: browsers behind two proxies send about 40.
pub const HEADER_COUNT_MAX: usize = 100;

/// Longest request target: a path of 1 KiB, each byte percent-encoded, and a query.
pub const TARGET_BYTES_MAX: usize = 8 << 10;

/// Longest line of a chunk's size with its extensions; 16 digits are all a size can have.
pub const CHUNK_LINE_BYTES_MAX: usize = 256;

/// All trailer fields of one chunked body together. They are read and forgotten.
pub const TRAILER_BYTES_MAX: usize = 8 << 10;

/// Source bytes of one text event: their exact form may have to follow in its control event, so
/// this much is kept while an event is encoded.
pub const TEXT_EVENT_BYTES_MAX: usize = 64 << 10;

/// Longest piece of a client's value that a problem shows again.
pub const ECHO_BYTES_MAX: usize = 120;

/// Longest `If-None-Match` that is kept; a longer one counts as absent, which is always correct.
pub const IF_NONE_MATCH_BYTES_MAX: usize = 1024;

const _: () = assert!(TARGET_BYTES_MAX < HEAD_BYTES_MAX);
const _: () = assert!(model::limits::PATH_BYTES_MAX * 3 + 64 < TARGET_BYTES_MAX);
const _: () = assert!(TEXT_EVENT_BYTES_MAX >= model::limits::READ_WINDOW_BYTES_MAX);
