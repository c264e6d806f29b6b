//! What this crate holds at most, and why.

/// Longest bearer token. Tokens of the field are below 2 KiB; heads are limited to 32 KiB by default.
pub const TOKEN_BYTES_MAX: usize = 8 << 10;

/// Longest bearer token that a connection remembers. Longer ones are looked up by their hash.
pub const REMEMBERED_BYTES_MAX: usize = 2 << 10;

/// Longest id of a token or a signing key.
pub const ID_BYTES_MAX: usize = 64;

/// Verified tokens that one shard remembers: a verification takes 25 to 80 µs, a look-up 1 µs.
pub const VERIFIED_MAX: usize = 10_000;

/// Signatures that one turn of a loop verifies: half a millisecond at most.
pub const VERIFICATIONS_PER_TURN_MAX: u32 = 8;

/// How far the clock of an issuer may differ from ours, in milliseconds.
pub const LEEWAY_MS: u64 = 60_000;

/// Principals of an access file, of all kinds.
pub const RULES_MAX: usize = 100_000;

/// Grants of one principal. They are compared one after the other.
pub const GRANTS_MAX: usize = 64;

/// Keys of one issuer.
pub const KEYS_MAX: usize = 64;

/// Clients of one kind whose use is metered at a time. Beyond them the one that was quiet for longest is forgotten.
pub const METERED_MAX: usize = 64 << 10;

/// How much of a limit may be used at once, in nanoseconds of its rate.
pub const BURST_NS: u64 = 1_000_000_000;

/// Shortest secret, in bytes: 256 bits cannot be guessed, so a fast hash of them is enough.
pub const SECRET_BYTES_MIN: usize = 32;

/// Shortest modulus of an RSA key, in bytes.
pub const RSA_MODULUS_BYTES_MIN: usize = 256;

const _: () = assert!(REMEMBERED_BYTES_MAX <= TOKEN_BYTES_MAX);
const _: () = assert!(METERED_MAX.is_power_of_two());
