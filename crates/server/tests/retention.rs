//! What a stream need not keep goes by itself, and its space comes back.

mod harness;

use harness::{BINARY, Client, Numbers, Start, TEXT, Watch, disk_bytes, new_dir, pause, until};
use std::time::Duration;

const MIB: usize = 1 << 20;

/// Number of the first record, as `HEAD` tells it.
fn first_record(client: &mut Client, path: &str) -> u64 {
    let head = client.call("HEAD", path, &[], b"").is(200);
    head.field("Stream-Record-First").map_or(0, |number| number.parse().unwrap())
}

#[test]
fn what_is_older_than_the_bound_goes_and_the_rest_stays() {
    let dir = new_dir();
    let start = Start::with(&["--shards", "2"]);
    let server = start.serve(dir.path());
    let mut client = server.connect();
    let fields = [("Content-Type", TEXT), ("Stream-Retention-Age", "2")];
    client.call("PUT", "/aged", &fields, b"").is(201);
    client.put("/kept", TEXT).is(201);
    for path in ["/aged", "/kept"] {
        // What the client says of its age does not count.
        let fields = [("Content-Type", TEXT), ("Stream-Record-Time", "1000")];
        client.call("POST", path, &fields, b"first").is(204);
    }
    let written = Watch::start();
    until("the first append is too old", || first_record(&mut client, "/aged") == 1);
    assert!(written.elapsed() > Duration::from_millis(1_900), "{:?}", written.elapsed());
    client.get("/aged?record=0").fails(410, "offset-trimmed");
    // A bound that comes later holds for what is there, also after a restart.
    client.call("PATCH", "/kept", &[("Stream-Retention-Age", "2")], b"").is(204);
    drop(client);
    server.kill();
    let server = start.serve(dir.path());
    let mut client = server.connect();
    until("it is too old here, too", || first_record(&mut client, "/kept") == 1);
    client.post("/kept", TEXT, b"second").is(204);
    assert_eq!(client.get("/kept").is(200).text(), "second");
    client.call("PATCH", "/kept", &[("Stream-Retention-Age", "none")], b"").is(204);
    pause(2_500);
    assert_eq!(client.get("/kept").is(200).text(), "second", "nothing is too old any more");
}

/// How long it takes until nine tenths of the bytes in chunks are back on the disk. The write-ahead log keeps its segments
/// and uses them again.
fn space_is_back(mib: usize, drop: fn(&mut Client)) -> Duration {
    let dir = new_dir();
    let server = Start::with(&["--shards", "2"]).serve(dir.path());
    let mut client = server.connect();
    client.put("/large", BINARY).is(201);
    let body = Numbers::new(5).bytes(MIB);
    for _ in 0..mib {
        client.post("/large", BINARY, &body).is(204);
    }
    let (stored, mut before) = (|| disk_bytes(dir.path(), "wal"), 0);
    until("most of it is in chunks", || {
        before = stored();
        before > (mib * MIB / 4 * 3) as u64
    });
    let began = Watch::start();
    drop(&mut client);
    while stored() > before / 10 && began.elapsed() < Duration::from_secs(90) {
        pause(20);
    }
    began.elapsed()
}

fn trim(client: &mut Client) {
    let next = client.call("HEAD", "/large", &[], b"").is(200).next().to_owned();
    client.call("PATCH", "/large", &[("Stream-Trim-Before", &next)], b"").is(204);
}

fn delete(client: &mut Client) {
    client.delete("/large").is(204);
}

#[test]
fn the_space_of_what_is_trimmed_or_deleted_comes_back() {
    for drop in [trim, delete] {
        let time = space_is_back(48, drop);
        assert!(time < Duration::from_secs(60), "{time:?}");
    }
}

/// `cargo test -p thalweg-server --test retention -- --ignored --nocapture`
#[test]
#[ignore = "writes 2 GiB"]
fn the_space_of_a_gibibyte_comes_back_within_a_minute() {
    for (name, drop) in [("trimmed", trim as fn(&mut Client)), ("deleted", delete)] {
        let time = space_is_back(1024, drop);
        println!("90 % of 1 GiB that was {name} is back after {time:?}");
        assert!(time < Duration::from_secs(60), "{time:?}");
    }
}
