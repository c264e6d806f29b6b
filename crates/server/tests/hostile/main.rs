//! Attacks on a real server beside healthy clients: they must hardly notice.
//!
//! Each attack has a short form, which CI runs, and a long one (`cargo xtask hostile`), which prints
//! its figures. `../harness/siege.rs` says how they are measured and what the limits are.

#[path = "../harness/mod.rs"]
mod harness;

mod connections;
mod frames;
mod handshakes;
mod requests;

use harness::siege::{Attack, Scale, withstands};
use std::time::Duration;

/// Seconds for each attack, without optimisation, on two cores that builds and other tests may be
/// using: there the server has a fraction of a core. What it is to find, a server that works for one
/// client as long as that one can keep it busy, lets healthy clients wait for seconds.
const SHORT: Scale = Scale {
    shards: "2",
    crowd: 1_000,
    calm: Duration::from_millis(1_000),
    attack: Duration::from_millis(1_500),
    floor: Duration::from_millis(1_000),
};

/// For a release build on a machine of its own.
const LONG: Scale = Scale {
    shards: "1",
    crowd: 2_000,
    calm: Duration::from_secs(5),
    attack: Duration::from_secs(20),
    floor: Duration::from_millis(20),
};

#[test]
fn heads_that_trickle_hold_nobody_up() {
    withstands(&connections::SLOW_HEADS, &SHORT);
}

#[test]
fn bodies_that_trickle_hold_nobody_up() {
    withstands(&connections::SLOW_BODIES, &SHORT);
}

#[test]
fn readers_that_stall_hold_nobody_up() {
    withstands(&connections::STALLED_READERS, &SHORT);
}

#[test]
fn readers_that_come_all_at_once_hold_nobody_up() {
    withstands(&connections::RUSH, &SHORT);
}

#[test]
fn connections_that_are_half_closed_hold_nobody_up() {
    withstands(&connections::HALF_CLOSED, &SHORT);
}

#[test]
fn connections_without_descriptors_hold_nobody_up() {
    withstands(&connections::NO_DESCRIPTORS, &SHORT);
}

#[test]
fn pipelined_floods_hold_nobody_up() {
    withstands(&requests::FLOODS, &SHORT);
}

#[test]
fn smuggled_requests_hold_nobody_up() {
    withstands(&requests::SMUGGLING, &SHORT);
}

#[test]
fn head_bombs_hold_nobody_up() {
    withstands(&requests::HEAD_BOMBS, &SHORT);
}

#[test]
fn deep_json_holds_nobody_up() {
    withstands(&requests::DEEP_JSON, &SHORT);
}

#[test]
fn handshakes_that_do_not_begin_hold_nobody_up() {
    withstands(&handshakes::SILENT_HANDSHAKES, &SHORT);
}

#[test]
fn floods_of_handshakes_hold_nobody_up() {
    withstands(&handshakes::HANDSHAKE_FLOOD, &SHORT);
}

#[test]
fn floods_of_frames_hold_nobody_up() {
    withstands(&frames::FRAME_FLOODS, &SHORT);
}

#[test]
fn floods_of_frames_over_tls_hold_nobody_up() {
    withstands(&frames::SECURE_FRAME_FLOODS, &SHORT);
}

#[test]
fn streams_that_stall_hold_nobody_up_and_are_bounded() {
    withstands(&frames::STALLED_STREAMS, &SHORT);
}

/// All attacks, one after the other.
const ALL: [Attack; 15] = [
    connections::SLOW_HEADS,
    connections::SLOW_BODIES,
    connections::STALLED_READERS,
    connections::RUSH,
    connections::HALF_CLOSED,
    connections::NO_DESCRIPTORS,
    requests::FLOODS,
    requests::SMUGGLING,
    requests::HEAD_BOMBS,
    requests::DEEP_JSON,
    handshakes::SILENT_HANDSHAKES,
    handshakes::HANDSHAKE_FLOOD,
    frames::FRAME_FLOODS,
    frames::SECURE_FRAME_FLOODS,
    frames::STALLED_STREAMS,
];

#[test]
#[ignore = "minutes: cargo xtask hostile"]
fn all_attacks_in_their_long_form() {
    for shards in ["1", "2"] {
        println!("shards: {shards}");
        for attack in &ALL {
            withstands(attack, &Scale { shards, ..LONG });
        }
    }
}
