//! The trace of a run as one number: two runs that differ anywhere differ in it.

/// FNV-1a over everything that happened, in order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trace {
    hash: u64,
    verbose: bool,
}

impl Trace {
    pub(crate) fn new(verbose: bool) -> Self {
        Self { hash: 0xcbf2_9ce4_8422_2325, verbose }
    }

    pub(crate) fn note(&mut self, at_us: u64, what: std::fmt::Arguments<'_>) {
        let line = format!("{at_us} {what}");
        if self.verbose {
            println!("{}.{:06} {what}", at_us / 1_000_000, at_us % 1_000_000);
        }
        self.bytes(line.as_bytes());
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.hash = (self.hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }
}
