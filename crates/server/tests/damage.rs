//! One flipped bit costs the stream that it hits, and nothing else.

mod harness;

use harness::client::offset;
use harness::{
    BINARY, Client, SMALL_LOG, Server, Start, TEXT, find, flip, is_there, new_dir, read_file, until,
};
use std::path::Path;

const MARK: &[u8] = b"the-bit-falls-here";

/// One shard: the log of another one would keep what it held until it is written again.
fn small() -> Start {
    Start::with(&[&SMALL_LOG[..], &["--shards", "1"]].concat())
}

/// Small segments, for which a disk with 150 MB of room is enough. A few appends stay in the log over some restarts: on less
/// room they are sealed early.
fn unsealed() -> Start {
    let sizes = ["--segment-bytes", "1MiB", "--wal-bytes-max", "16MiB", "--seal-bytes", "4MiB"];
    Start::with(&[&sizes[..], &["--shards", "1"]].concat())
}

/// Makes `/whole/0` to `/whole/9`, and `/hit` with the mark in its second append.
fn fill(client: &mut Client) {
    client.put("/hit", TEXT).is(201);
    client.post("/hit", TEXT, b"before,").is(204);
    client.post("/hit", TEXT, MARK).is(204);
    client.post("/hit", TEXT, b",after").is(204);
    for number in 0..10 {
        let path = format!("/whole/{number}");
        client.put(&path, TEXT).is(201);
        client.post(&path, TEXT, format!("intact {number}").as_bytes()).is(204);
    }
}

fn assert_whole(client: &mut Client) {
    for number in 0..10 {
        let expected = format!("intact {number}");
        assert_eq!(client.read_all(&format!("/whole/{number}")), expected.as_bytes());
        client.post(&format!("/whole/{number}"), TEXT, b"").fails(400, "empty-append");
    }
}

/// The intact bytes before the damage are served. The read that begins at it gets an error.
fn assert_damaged(client: &mut Client, file: &str) {
    let before = client.get("/hit").is(200);
    assert_eq!(before.text(), "before,");
    assert_eq!(before.field("Stream-Up-To-Date"), None);
    let rest = client.get(&format!("/hit?offset={}", before.next()));
    let problem = rest.fails(500, "stream-damaged");
    assert_eq!(problem.json()["applied"], false);
    assert!(problem.json()["detail"].as_str().unwrap().contains(file), "{}", problem.text());
    let after = offset((b"before,".len() + MARK.len()) as u64);
    let after = client.get(&format!("/hit?offset={after}")).is(200);
    assert!(after.text().starts_with(",after"), "what follows the damage is served");
}

fn errors(server: &Server) -> Vec<String> {
    server.awaited_lines("ERROR")
}

/// Writes until the stream with the mark lies in a chunk and no WAL file holds it.
fn fill_until_sealed(dir: &Path) {
    let server = small().serve(dir);
    let mut client = server.connect();
    fill(&mut client);
    client.put("/ballast", BINARY).is(201);
    let mut numbers = harness::Numbers::new(1);
    until("the mark has left the WAL", || {
        for _ in 0..20 {
            let body = numbers.bytes(60_000);
            client.post("/ballast", BINARY, &body);
        }
        find(dir, ".wal", MARK).is_empty()
    });
    server.kill();
}

/// The path of the damaged stream can be freed and used again.
fn assert_reusable(client: &mut Client) {
    client.delete("/hit").is(204);
    client.put("/hit", TEXT).is(201);
    client.post("/hit", TEXT, b"anew").is(204);
    assert_eq!(client.read_all("/hit"), b"anew");
}

#[test]
fn a_flipped_bit_in_the_wal_costs_one_stream() {
    let dir = new_dir();
    let server = unsealed().serve(dir.path());
    fill(&mut server.connect());
    server.kill();
    let places = find(dir.path(), ".wal", MARK);
    let [(file, at)] = &places[..] else { panic!("the mark is at {places:?}") };
    let length = read_file(file).len();
    flip(file, *at + 3);

    let server = unsealed().serve(dir.path());
    let mut client = server.connect();
    let name = file.file_name().unwrap().to_str().unwrap();
    assert_damaged(&mut client, name);
    client.post("/hit", TEXT, b", more").is(204);
    assert_damaged(&mut client, name);
    assert_whole(&mut client);
    let errors = errors(&server);
    assert_eq!(errors.len(), 1, "{errors:#?}");
    assert!(errors[0].contains(name), "{errors:#?}");
    assert_eq!(read_file(file).len(), length, "nothing is cut off");
    assert_reusable(&mut client);
}

#[test]
fn damage_is_still_known_after_another_restart() {
    let dir = new_dir();
    let server = unsealed().serve(dir.path());
    fill(&mut server.connect());
    server.stop();
    let (file, at) = find(dir.path(), ".wal", MARK).remove(0);
    flip(&file, at);
    for _ in 0..3 {
        let server = unsealed().serve(dir.path());
        let mut client = server.connect();
        assert_damaged(&mut client, file.file_name().unwrap().to_str().unwrap());
        assert_whole(&mut client);
        server.stop();
    }
}

#[test]
fn a_flipped_bit_in_a_chunk_costs_one_stream() {
    let dir = new_dir();
    fill_until_sealed(dir.path());
    let places = find(dir.path(), "/chunks/", MARK);
    for (file, at) in &places {
        flip(file, *at + 3);
    }
    let (file, _) = places.last().expect("the mark is in a chunk");
    let server = small().serve(dir.path());
    let mut client = server.connect();
    let problem = client.get("/hit").fails(500, "stream-damaged");
    let name = file.file_name().unwrap().to_str().unwrap();
    assert!(problem.json()["detail"].as_str().unwrap().contains(name), "{}", problem.text());
    assert_whole(&mut client);
    assert!(!client.read_all("/ballast").is_empty());
    assert_eq!(find(dir.path(), "/chunks/", MARK), [], "the file is left as it is");
    assert!(!read_file(file).is_empty(), "the file is left where it is");
}

#[test]
fn a_damaged_chunk_is_logged_as_an_error_once() {
    let dir = new_dir();
    fill_until_sealed(dir.path());
    for (file, at) in find(dir.path(), "/chunks/", MARK) {
        flip(&file, at + 3);
    }
    let server = small().serve(dir.path());
    let mut client = server.connect();
    for _ in 0..3 {
        client.get("/hit").fails(500, "stream-damaged");
    }
    let errors = errors(&server);
    assert_eq!(errors.len(), 1, "{errors:#?}");
}

#[test]
fn a_flipped_bit_in_a_checkpoint_costs_one_stream() {
    let dir = new_dir();
    let path = "/a-path-that-only-checkpoints-hold-after-a-while";
    let server = small().serve(dir.path());
    let mut client = server.connect();
    client.put(path, TEXT).is(201);
    client.post(path, TEXT, b"data").is(204);
    server.stop();
    fill_until_sealed(dir.path());
    let needle = &path.as_bytes()[1..];
    let server = small().serve(dir.path());
    let mut client = server.connect();
    let mut numbers = harness::Numbers::new(1);
    until("only checkpoints hold the path", || {
        let body = numbers.bytes(60_000);
        client.post("/ballast", BINARY, &body);
        find(dir.path(), ".wal", needle).is_empty()
    });
    server.kill();
    let places = find(dir.path(), "/checkpoints/", needle);
    assert!(!places.is_empty(), "a checkpoint holds the path");
    for (file, at) in &places {
        flip(file, *at);
    }
    let server = small().serve(dir.path());
    let mut client = server.connect();
    client.get(path).fails(500, "stream-damaged");
    assert_whole(&mut client);
    assert_eq!(client.read_all("/hit"), [b"before,", MARK, b",after"].concat());
    let errors = errors(&server);
    assert_eq!(errors.len(), places.len(), "{errors:#?}");
    assert!(errors[0].contains("/checkpoints/"), "{errors:#?}");
}

/// Exit code of `thalweg repair`, and all that it says.
fn repair(dir: &Path, flags: &[&str]) -> (i32, String) {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_thalweg"))
        .args(["repair", "--shards", "1", "--data-dir"])
        .arg(dir)
        .args(SMALL_LOG)
        .args(flags)
        .output()
        .expect("the binary runs");
    let said = [output.stdout, output.stderr].concat();
    (output.status.code().expect("it ends by itself"), String::from_utf8(said).unwrap())
}

#[test]
fn an_operator_sees_what_is_lost_and_accepts_it() {
    let dir = new_dir();
    fill_until_sealed(dir.path());
    let (code, said) = repair(dir.path(), &[]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("12 streams") && said.contains("no chunk file is damaged"), "{said}");

    let places = find(dir.path(), "/chunks/", MARK);
    places.iter().for_each(|(file, at)| flip(file, *at + 3));
    let (file, _) = places.last().expect("the mark is in a chunk");
    let server = small().serve(dir.path());
    let (code, said) = repair(dir.path(), &["--accept-loss"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("is locked by process"), "{said}");
    server.stop();

    for _ in 0..2 {
        let (code, said) = repair(dir.path(), &[]);
        assert_eq!(code, 3, "{said}");
        let damaged = format!("damaged: {}", file.display());
        // The run is short, so all of it counts by one checksum.
        let end = "before,".len() + MARK.len() + ",after".len();
        let lost = format!("lost: {end} bytes of the stream hit, whose tail is {end}");
        for part in [&damaged, &lost, &format!("bytes 0 to {end}\n"), "nothing was changed"] {
            assert!(said.contains(part), "{part} is not in {said}");
        }
        assert!(!said.contains("whole/"), "{said}");
        assert!(is_there(file));
    }

    let (code, said) = repair(dir.path(), &["--accept-loss"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("accepted: ") && said.contains("no chunk file is damaged now"), "{said}");
    assert!(!is_there(file));
    let (code, said) = repair(dir.path(), &[]);
    assert_eq!(code, 0, "{said}");
    let server = small().serve(dir.path());
    let mut client = server.connect();
    client.get("/hit").fails(500, "stream-damaged");
    assert_whole(&mut client);
    assert!(!client.read_all("/ballast").is_empty());
    assert_reusable(&mut client);
}

#[test]
fn a_repair_of_what_is_not_there_makes_nothing() {
    let dir = new_dir();
    let nowhere = dir.path().join("nowhere");
    let (code, said) = repair(&nowhere, &["--accept-loss"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("there is no data directory"), "{said}");
    assert!(!is_there(&nowhere));
}
