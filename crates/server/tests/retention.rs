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

const RECORDS: &str = "Stream-Retention-Records";

/// Bounds as settings of the server, `0` for all.
fn with_defaults(records: &str, bytes: &str) -> Start {
    Start::with(&["--retention-records", records, "--retention-bytes", bytes])
}

fn create(client: &mut Client, path: &str, bound: (&str, &str)) {
    client.call("PUT", path, &[("Content-Type", TEXT), bound], b"").is(201);
}

fn append_eight(client: &mut Client, path: &str) {
    (0..8).for_each(|_| _ = client.post(path, TEXT, b"0123456789").is(204));
}

fn change(client: &mut Client, path: &str, records: &str) {
    client.call("PATCH", path, &[(RECORDS, records)], b"").is(204);
}

/// Waits until streams begin at these records, and sees that they stay so.
fn begin_at(client: &mut Client, firsts: &[(&str, u64)]) {
    let mut found = Vec::new();
    until("what need not be kept is gone", || {
        found = firsts.iter().map(|(path, _)| (*path, first_record(client, path))).collect();
        found.iter().zip(firsts).all(|(found, wanted)| found.1 >= wanted.1)
    });
    assert_eq!(found, firsts, "at least what was asked is kept");
    pause(300);
    found = firsts.iter().map(|(path, _)| (*path, first_record(client, path))).collect();
    assert_eq!(found, firsts, "no more goes later");
}

#[test]
fn a_default_holds_where_a_stream_has_no_bound_of_its_own() {
    let dir = new_dir();
    let server = with_defaults("3", "0").serve(dir.path());
    let mut client = server.connect();
    client.put("/plain", TEXT).is(201);
    create(&mut client, "/named", (RECORDS, "default"));
    create(&mut client, "/own", (RECORDS, "5"));
    create(&mut client, "/all", (RECORDS, "none"));
    // A bound of another kind leaves the default of this one.
    create(&mut client, "/bytes", ("Stream-Retention-Bytes", "60"));
    let all = ["/plain", "/named", "/own", "/all", "/bytes"];
    all.iter().for_each(|path| append_eight(&mut client, path));
    begin_at(&mut client, &[("/plain", 5), ("/named", 5), ("/own", 3), ("/all", 0), ("/bytes", 5)]);
    let own = client.call("HEAD", "/own", &[], b"").is(200);
    assert_eq!(own.field(RECORDS), Some("5"));

    // A change holds for what is there, and wins over the default and over what the stream said before.
    change(&mut client, "/plain", "2");
    change(&mut client, "/own", "default");
    change(&mut client, "/all", "7");
    let changed = [("/plain", 6), ("/named", 5), ("/own", 5), ("/all", 1), ("/bytes", 5)];
    begin_at(&mut client, &changed);
    assert_eq!(client.get("/plain?record=6").is(200).text().len(), 20);
}

#[test]
fn another_default_at_a_start_holds_for_data_that_is_there() {
    let dir = new_dir();
    let server = with_defaults("0", "0").serve(dir.path());
    let mut client = server.connect();
    client.put("/plain", TEXT).is(201);
    create(&mut client, "/own", (RECORDS, "6"));
    create(&mut client, "/all", (RECORDS, "none"));
    ["/plain", "/own", "/all"].iter().for_each(|path| append_eight(&mut client, path));
    begin_at(&mut client, &[("/plain", 0), ("/own", 2), ("/all", 0)]);
    drop(client);
    server.kill();

    // Nobody appends: what is there goes by itself.
    let server = with_defaults("4", "0").serve(dir.path());
    let mut client = server.connect();
    begin_at(&mut client, &[("/plain", 4), ("/own", 2), ("/all", 0)]);
    drop(client);
    server.kill();

    // Bytes are a bound of their own, which only streams without that bound have from the setting.
    let server = with_defaults("0", "30").serve(dir.path());
    let mut client = server.connect();
    begin_at(&mut client, &[("/plain", 5), ("/own", 5), ("/all", 5)]);
    drop(client);
    server.kill();

    // Without a default nothing more goes, and nothing comes back.
    let server = with_defaults("0", "0").serve(dir.path());
    let mut client = server.connect();
    append_eight(&mut client, "/plain");
    begin_at(&mut client, &[("/plain", 5), ("/own", 5), ("/all", 5)]);
    client.get("/plain?record=4").fails(410, "offset-trimmed");
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
