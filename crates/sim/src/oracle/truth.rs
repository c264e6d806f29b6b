//! The facts of one stream.

/// What a stream holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Text,
    Binary,
    Json,
}

impl Shape {
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain",
            Self::Binary => "application/octet-stream",
            Self::Json => "application/json",
        }
    }
}

/// The facts of one stream.
#[derive(Debug)]
pub(crate) struct Truth {
    pub(crate) path: String,
    pub(crate) shape: Shape,
    /// The source and the first byte of its own, if it is a fork.
    pub(crate) fork: Option<(super::StreamNo, u64)>,
    /// Its creation was acknowledged.
    pub(crate) is_ready: bool,
    /// Its deletion was acknowledged or seen.
    pub(crate) is_gone: bool,
    /// Its deletion was sent.
    pub(crate) may_be_gone: bool,
    /// It may expire at any time.
    pub(crate) is_mortal: bool,
    /// A fork of it may exist or have existed.
    pub(crate) has_forks: bool,
    /// The final audit has read it to its end.
    pub(crate) was_audited: bool,
    /// It reaches to here at least.
    pub(crate) floor: u64,
    pub(crate) closed_at: Option<u64>,
    /// Up to here the bytes are known to be whole appends.
    pub(crate) parsed_to: u64,
    bytes: Vec<u8>,
    known: Vec<bool>,
}

impl Truth {
    pub(super) fn new(path: &str, shape: Shape) -> Self {
        Self {
            path: path.to_owned(),
            shape,
            fork: None,
            is_ready: false,
            is_gone: false,
            may_be_gone: false,
            is_mortal: false,
            has_forks: false,
            was_audited: false,
            floor: 0,
            closed_at: None,
            parsed_to: 0,
            bytes: Vec::new(),
            known: Vec::new(),
        }
    }

    /// Says where the stream branches off.
    pub(crate) fn set_fork(&mut self, source: super::StreamNo, at: u64) {
        self.fork = Some((source, at));
        self.parsed_to = at;
    }

    pub(crate) fn fork_at(&self) -> u64 {
        self.fork.map_or(0, |(_, at)| at)
    }

    /// Takes bytes as facts; returns where one contradicts.
    pub(super) fn learn(&mut self, start: u64, bytes: &[u8]) -> Option<u64> {
        let from = usize::try_from(start).expect("a length");
        let end = from + bytes.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
            self.known.resize(end, false);
        }
        for (place, byte) in (from..end).zip(bytes) {
            if self.known[place] && self.bytes[place] != *byte {
                return Some(place as u64);
            }
            self.known[place] = true;
            self.bytes[place] = *byte;
        }
        None
    }

    /// Where the next append to be found begins, and what is known from there without a gap.
    pub(super) fn unparsed(&self) -> Option<(u64, &[u8])> {
        let from = usize::try_from(self.parsed_to).expect("a length");
        let known = self.known.get(from..)?;
        let count = known.iter().position(|known| !known).unwrap_or(known.len());
        (count > 0).then(|| (self.parsed_to, &self.bytes[from..from + count]))
    }
}
