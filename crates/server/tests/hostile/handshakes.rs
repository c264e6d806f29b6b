//! Attacks on TLS, while healthy clients speak plain HTTP with the same loops.

use super::harness::siege::{Attack, Siege};
use super::harness::tls::first_flight;
use super::harness::{Client, pause};

const MIB: u64 = 1 << 20;

/// The record of a hello that announces 512 bytes and has none of them.
const HALF_HELLO: &[u8] = b"\x16\x03\x01\x02\x00\x01";

/// A server with both kinds of ports.
pub(crate) const FLAGS: &[&str] =
    &["--listen", "http://127.0.0.1:0,https://127.0.0.1:0", "--tls-self-signed", "on"];

/// Connections of a flood before it waits for answers.
const FLIGHT_COUNT: usize = 16;

/// A third says nothing, a third stops inside its hello, a third says what is no TLS; who is thrown out comes back.
pub(crate) const SILENT_HANDSHAKES: Attack = Attack {
    name: "silent handshakes",
    prepare: |_| {},
    run: |siege| {
        let mut crowd: Vec<Client> = (0..siege.crowd).map(|number| begun(siege, number)).collect();
        siege.set_ready();
        while siege.is_running() {
            for (number, client) in crowd.iter_mut().enumerate() {
                if !client.try_send(&[0]) {
                    *client = begun(siege, number);
                }
            }
            pause(200);
        }
    },
    flags: FLAGS,
    under: &[],
    growth_bytes_max: 32 * MIB,
};

fn begun(siege: &Siege<'_>, number: usize) -> Client {
    let mut client = Client::connect(siege.server.secure_address());
    client.try_send([b"", HALF_HELLO, b"\0\0\0"][number % 3]);
    client
}

/// Hellos that cost the client nothing, and the server a key exchange and a signature each. The client goes when they
/// are answered.
pub(crate) const HANDSHAKE_FLOOD: Attack = Attack {
    name: "flood of handshakes",
    prepare: |_| {},
    run: |siege| {
        let hello = first_flight();
        let address = siege.server.secure_address();
        siege.set_ready();
        while siege.is_running() {
            let mut flight: Vec<Client> =
                (0..FLIGHT_COUNT).map(|_| Client::connect(address)).collect();
            for client in &mut flight {
                client.try_send(&hello);
            }
            for client in &mut flight {
                client.wait_for_bytes();
            }
        }
    },
    flags: FLAGS,
    under: &[],
    growth_bytes_max: 32 * MIB,
};
