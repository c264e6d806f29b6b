//! What bodies are charged, and until when.

use crate::support::{Shard, TEXT, put, request};
use thalweg_session::Options;

fn fork(name: &str, body: &[u8]) -> Vec<u8> {
    request("PUT", name, &format!("{TEXT}Stream-Forked-From: /v1/stream/source\r\n"), body)
}

#[test]
fn bodies_of_forks_are_charged_until_the_node_has_answered() {
    let body = vec![b'x'; 40 << 10];
    let most = 3 * body.len();
    let mut shard = Shard::with(Options { body_bytes_in_flight_max: most, ..Options::default() });
    shard.once(&put("source", b"x"));
    shard.holds_syncs = true;
    let mut clients = Vec::new();
    for number in 0..5 {
        let conn = shard.connect();
        shard.send(conn, &fork(&format!("fork{number}"), &body));
        clients.push(conn);
    }
    assert_eq!(shard.admission.body_bytes(), most);
    let refused = clients.split_off(3);
    for conn in refused {
        assert_eq!(shard.statuses(conn), [503]);
    }
    let gone = clients.pop().unwrap();
    shard.hang_up(gone);
    assert_eq!(shard.admission.body_bytes(), most, "the node still holds its body");
    shard.holds_syncs = false;
    shard.sync();
    for conn in clients {
        assert_eq!(shard.statuses(conn), [201]);
    }
    assert_eq!(shard.admission.body_bytes(), 0);
}
