//! Bounds of one connection, each with its reason.

/// What a client may send to one stream without an answer: 5 MiB a second at 50 ms.
pub const STREAM_WINDOW_BYTES: u32 = 256 << 10;

/// The same for all streams of a connection: 20 MiB a second at 50 ms.
pub const CONNECTION_WINDOW_BYTES: u32 = 1 << 20;

/// What one poll gives the library: 0.1 to 0.3 ms of frames that ask for nothing.
pub const INPUT_BYTES_PER_POLL: usize = 16 << 10;

/// Bytes of output that a poll may leave, besides one frame.
pub const OUTPUT_BYTES_MAX: usize = 64 << 10;

/// Bytes of bodies that the library is given for all streams of a connection before its output is taken.
pub const UNSENT_BYTES_MAX: usize = 256 << 10;

/// The same for one stream.
pub const STREAM_UNSENT_BYTES_MAX: usize = 64 << 10;

/// Bytes of short pieces that a stream takes without a question, after the client had room for one. Should it take no more, the library
/// holds them.
pub const STREAM_HELD_BYTES_MAX: usize = 4 << 10;

/// Resets by a client that nobody minds: a browser that leaves a page resets all of its streams.
pub const RESETS_MAX: u32 = 1_000;

/// How many of them a second gives back.
pub const RESETS_PER_SECOND: u32 = 33;

/// Streams that the server has reset and remembers.
pub const OWN_RESETS_MAX: usize = 16;

/// Streams that were reset before anybody looked at them.
pub const UNSEEN_RESETS_MAX: usize = 20;

/// Streams that the library has reset for an error.
pub const ERROR_RESETS_MAX: usize = 128;

const _: () = assert!(STREAM_WINDOW_BYTES <= CONNECTION_WINDOW_BYTES);
const _: () = assert!(STREAM_HELD_BYTES_MAX <= STREAM_UNSENT_BYTES_MAX);
const _: () = assert!(STREAM_UNSENT_BYTES_MAX <= UNSENT_BYTES_MAX);
