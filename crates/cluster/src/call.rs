//! Proof that who calls a node's admin port knows the cluster's secret.
//!
//! # How
//! The caller makes an HMAC-SHA-256 under the secret over what it wants, of which node, when, and 16 random bytes. The node
//! compares, and remembers the random bytes for as long as the time would be believed. So a call that was recorded
//! is worth nothing: not again, not later, not at another node, and not for another call.
//!
//! # Format
//! The HMAC is over these lines, each with a line feed behind it, and the body behind them:
//!
//! `thalweg admin call 1`, method, path with its query, number of the node, time in milliseconds since 1970, the random bytes as
//! hexadecimal digits. The proof is a text: `Thalweg time=T, nonce=N, mac=M`.
//!
//! # Bounds
//! [`CALLS_MAX`] proofs are remembered. Those without the secret are not.

use crate::identity::NodeNumber;
use crate::link::Secret;
use hmac::{Hmac, KeyInit, Mac};
use model::Timestamp;
use sha2::Sha256;
use std::collections::BTreeMap;
use std::fmt;

/// By how much the clocks of caller and node may differ.
pub const CALL_CLOCK_MS_MAX: u64 = 300_000;

/// Proofs that are remembered. More calls than that in ten minutes are refused.
pub const CALLS_MAX: usize = 4096;

const NONCE_BYTES: usize = 16;

const MAC_BYTES: usize = 32;

/// What a caller wants of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdminCall<'a> {
    /// The method, as it is sent.
    pub method: &'a str,
    /// The path, with its query.
    pub path: &'a str,
    /// The node that is called.
    pub node: NodeNumber,
    /// The body.
    pub body: &'a [u8],
}

/// The proof that comes with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallProof {
    at: Timestamp,
    nonce: [u8; NONCE_BYTES],
    mac: [u8; MAC_BYTES],
}

/// Why a call is not carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallRefused {
    /// The caller does not know the secret, or means another node or call.
    Wrong,
    /// The clocks differ by more than [`CALL_CLOCK_MS_MAX`].
    Clock {
        /// The caller's.
        theirs: Timestamp,
        /// The node's.
        ours: Timestamp,
    },
    /// It is from before the node's start: the node does not know whether it came then.
    BeforeStart,
    /// It came before.
    Repeated,
    /// There were too many calls lately.
    TooMany,
}

impl fmt::Display for CallRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wrong => f.write_str(
                "the proof is wrong: the secret is that of another cluster, or the call is for another node",
            ),
            Self::Clock { theirs, ours } => write!(
                f,
                "the call is of {} ms and the clock of the node says {} ms: set the clocks right, they may differ by five \
                 minutes",
                theirs.get(),
                ours.get()
            ),
            Self::BeforeStart => f.write_str(
                "the call is from before the start of the node: call again, and compare the clocks if that does not help",
            ),
            Self::Repeated => f.write_str("the same call came before: make a new proof"),
            Self::TooMany => f.write_str("there were too many calls in the last minutes: call later"),
        }
    }
}

impl std::error::Error for CallRefused {}

impl AdminCall<'_> {
    /// The proof for this call. No two may have the same random bytes.
    #[must_use]
    pub fn prove(&self, secret: &Secret, at: Timestamp, nonce: [u8; 16]) -> CallProof {
        let mac = self.mac(secret, at, &nonce).finalize().into_bytes().into();
        CallProof { at, nonce, mac }
    }

    fn mac(&self, secret: &Secret, at: Timestamp, nonce: &[u8]) -> Hmac<Sha256> {
        let mac = Hmac::<Sha256>::new_from_slice(secret.bytes());
        let mut mac = mac.expect("HMAC takes keys of any length");
        let Self { method, path, node, body } = self;
        let (at, nonce) = (at.get(), digits(nonce));
        let lines = format!("thalweg admin call 1\n{method}\n{path}\n{node}\n{at}\n{nonce}\n");
        mac.update(lines.as_bytes());
        mac.update(body);
        mac
    }
}

impl CallProof {
    /// The proof that this text is.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut fields = text.strip_prefix("Thalweg ")?.split(", ");
        let at = fields.next()?.strip_prefix("time=")?;
        let nonce = fields.next()?.strip_prefix("nonce=")?;
        let mac = fields.next()?.strip_prefix("mac=")?;
        let is_number = !at.is_empty() && at.bytes().all(|digit| digit.is_ascii_digit());
        if !is_number || fields.next().is_some() {
            return None;
        }
        let at = Timestamp::new(at.parse().ok()?);
        Some(Self { at, nonce: bytes(nonce)?, mac: bytes(mac)? })
    }
}

impl fmt::Display for CallProof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (nonce, mac) = (digits(&self.nonce), digits(&self.mac));
        write!(f, "Thalweg time={}, nonce={nonce}, mac={mac}", self.at.get())
    }
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes<const N: usize>(digits: &str) -> Option<[u8; N]> {
    let digits = digits.as_bytes();
    let is_lower = |digit: &u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
    if digits.len() != 2 * N || !digits.iter().all(is_lower) {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

/// The calls that a node has taken, as long as they could be repeated.
#[derive(Debug)]
pub struct Calls {
    began: Timestamp,
    taken: BTreeMap<[u8; NONCE_BYTES], Timestamp>,
}

impl Calls {
    /// Of a node that starts now.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        Self { began: now, taken: BTreeMap::new() }
    }

    /// Takes a call, once.
    ///
    /// # Errors
    /// [`CallRefused`].
    pub fn take(
        &mut self,
        (secret, call): (&Secret, &AdminCall<'_>),
        proof: &CallProof,
        now: Timestamp,
    ) -> Result<(), CallRefused> {
        let mac = call.mac(secret, proof.at, &proof.nonce);
        if mac.verify_slice(&proof.mac).is_err() {
            return Err(CallRefused::Wrong);
        }
        let (theirs, ours) = (proof.at, now);
        if theirs.get().abs_diff(ours.get()) > CALL_CLOCK_MS_MAX {
            return Err(CallRefused::Clock { theirs, ours });
        }
        if theirs < self.began {
            return Err(CallRefused::BeforeStart);
        }
        let oldest = ours.get().saturating_sub(CALL_CLOCK_MS_MAX);
        self.taken.retain(|_, at| at.get() >= oldest);
        if self.taken.contains_key(&proof.nonce) {
            return Err(CallRefused::Repeated);
        }
        if self.taken.len() >= CALLS_MAX {
            return Err(CallRefused::TooMany);
        }
        self.taken.insert(proof.nonce, theirs);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CALL: AdminCall<'_> = AdminCall {
        method: "PUT",
        path: "/cluster/nodes/3/state",
        node: NodeNumber::new(1),
        body: b"draining",
    };

    const START: Timestamp = Timestamp::new(1_000_000);

    fn secret() -> Secret {
        Secret::new([7; 32])
    }

    fn after(ms: u64) -> Timestamp {
        Timestamp::new(START.get() + ms)
    }

    #[test]
    fn a_proof_has_golden_text() {
        let proof = CALL.prove(&secret(), START, [9; 16]);
        let golden = "Thalweg time=1000000, nonce=09090909090909090909090909090909, \
                      mac=760ffc83151117a41f4c112266136881ddb83593eca2f4a9c5b7ec6cf6518024";
        assert_eq!(proof.to_string(), golden);
        assert_eq!(CallProof::parse(golden), Some(proof));
    }

    #[test]
    fn a_call_is_taken_once_and_for_what_it_is() {
        let mut calls = Calls::new(START);
        let proof = CALL.prove(&secret(), after(1), [9; 16]);
        let others = [
            AdminCall { method: "POST", ..CALL },
            AdminCall { path: "/cluster/nodes/2/state", ..CALL },
            AdminCall { node: NodeNumber::new(2), ..CALL },
            AdminCall { body: b"removed", ..CALL },
        ];
        for other in others {
            let taken = calls.take((&secret(), &other), &proof, after(2));
            assert_eq!(taken, Err(CallRefused::Wrong), "{other:?}");
        }
        let other = Secret::new([8; 32]);
        assert_eq!(calls.take((&other, &CALL), &proof, after(2)), Err(CallRefused::Wrong));
        let later = CallProof { at: after(2), ..proof };
        assert_eq!(calls.take((&secret(), &CALL), &later, after(2)), Err(CallRefused::Wrong));
        assert_eq!(calls.take((&secret(), &CALL), &proof, after(2)), Ok(()));
        assert_eq!(calls.take((&secret(), &CALL), &proof, after(3)), Err(CallRefused::Repeated));
        let again = CALL.prove(&secret(), after(3), [10; 16]);
        assert_eq!(calls.take((&secret(), &CALL), &again, after(3)), Ok(()));
    }

    #[test]
    fn a_call_is_remembered_as_long_as_its_time_is_believed() {
        let mut calls = Calls::new(START);
        let ahead = after(CALL_CLOCK_MS_MAX);
        let proof = CALL.prove(&secret(), ahead, [9; 16]);
        let mut take = |ms: u64| calls.take((&secret(), &CALL), &proof, after(ms));
        assert_eq!(take(0), Ok(()));
        assert_eq!(take(2 * CALL_CLOCK_MS_MAX), Err(CallRefused::Repeated));
        let ours = after(2 * CALL_CLOCK_MS_MAX + 1);
        let refused = Err(CallRefused::Clock { theirs: ahead, ours });
        assert_eq!(take(2 * CALL_CLOCK_MS_MAX + 1), refused);
    }

    #[test]
    fn a_clock_that_is_wrong_and_a_call_from_before_the_start_are_refused() {
        let mut calls = Calls::new(START);
        let theirs = after(CALL_CLOCK_MS_MAX + 1);
        let ahead = CALL.prove(&secret(), theirs, [9; 16]);
        let refused = CallRefused::Clock { theirs, ours: START };
        assert_eq!(calls.take((&secret(), &CALL), &ahead, START), Err(refused));
        let before = CALL.prove(&secret(), Timestamp::new(START.get() - 1), [9; 16]);
        let taken = calls.take((&secret(), &CALL), &before, after(5));
        assert_eq!(taken, Err(CallRefused::BeforeStart));
    }

    #[test]
    fn no_more_calls_are_remembered_than_there_is_room_for() {
        let mut calls = Calls::new(START);
        let mut take = |number: u64, at: Timestamp| {
            let nonce = [number.to_le_bytes(), [0; 8]].concat().try_into().unwrap();
            calls.take((&secret(), &CALL), &CALL.prove(&secret(), at, nonce), at)
        };
        for number in 0..CALLS_MAX as u64 {
            assert_eq!(take(number, START), Ok(()));
        }
        assert_eq!(take(u64::MAX, START), Err(CallRefused::TooMany));
        assert_eq!(take(u64::MAX, after(CALL_CLOCK_MS_MAX + 1)), Ok(()), "later there is room");
    }

    #[test]
    fn texts_that_are_no_proof_are_refused() {
        let proof = CALL.prove(&secret(), START, [9; 16]).to_string();
        for (from, to) in [
            ("Thalweg ", "Bearer "),
            ("time=", "time=+"),
            ("time=1000000", "time="),
            ("time=1000000", "time=99999999999999999999"),
            (", nonce", ",nonce"),
            ("nonce=09", "nonce=9"),
            ("nonce=09", "nonce=0G"),
            ("nonce=0909", "nonce=\u{e9}9"),
        ] {
            let wrong = proof.replacen(from, to, 1);
            assert_ne!(wrong, proof);
            assert_eq!(CallProof::parse(&wrong), None, "{wrong}");
        }
        assert_eq!(CallProof::parse(&format!("{proof}, more")), None);
    }

    proptest! {
        #[test]
        fn any_text_is_a_proof_or_none(text in "(Thalweg )?(time=[0-9]{0,3})?(, nonce=[0-9a-f]{0,33})?(, mac=.{0,5})?") {
            if let Some(proof) = CallProof::parse(&text) {
                prop_assert!(CallProof::parse(&proof.to_string()).is_some());
            }
        }
    }
}
