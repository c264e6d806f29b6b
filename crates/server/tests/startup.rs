//! What a server refuses to start on, and says why; and what a change costs.

mod harness;

use harness::{Server, Start, TEXT, files, new_dir, read_file, write_file};

#[test]
fn a_directory_in_use_is_refused() {
    let dir = new_dir();
    let server = Start::with(&[]).serve(dir.path());
    server.connect().put("/s", TEXT).is(201);
    let said = Start::with(&[]).refused(dir.path());
    assert!(said.contains("in use") || said.contains("lock"), "{said}");
    assert!(said.contains(&dir.path().display().to_string()), "{said}");
    server.connect().get("/s").is(200);
    server.kill();
    Start::with(&[]).serve(dir.path()).connect().get("/s").is(200);
}

#[test]
fn another_number_of_groups_is_refused() {
    let dir = new_dir();
    Start::with(&["--groups", "8"]).serve(dir.path()).stop();
    let said = Start::with(&["--groups", "9"]).refused(dir.path());
    assert!(said.contains('8') && said.contains('9') && said.contains("groups"), "{said}");
    Start::with(&["--groups", "8"]).serve(dir.path()).stop();
}

#[test]
fn a_damaged_directory_is_refused_and_left_alone() {
    let dir = new_dir();
    Start::with(&[]).serve(dir.path()).stop();
    let paths = ["FORMAT", "FORMAT.copy"].map(|name| dir.path().join(name));
    let mut format = read_file(&paths[0]);
    format[8] += 1;
    paths.iter().for_each(|path| write_file(path, &format));
    let said = Start::with(&[]).refused(dir.path());
    assert!(said.contains("FORMAT.copy") && said.contains("backup"), "{said}");
    paths.iter().for_each(|path| assert_eq!(read_file(path), format));
}

#[test]
fn one_intact_copy_of_format_is_enough_and_the_other_is_named() {
    for name in ["FORMAT", "FORMAT.copy"] {
        let dir = new_dir();
        let server = Start::with(&[]).serve(dir.path());
        server.connect().put("/s", TEXT).is(201);
        server.kill();
        let path = dir.path().join(name);
        let mut format = read_file(&path);
        format[15] ^= 1;
        write_file(&path, &format);
        let server = Start::with(&[]).serve(dir.path());
        server.connect().get("/s").is(200);
        let errors = server.awaited_lines("ERROR");
        assert!(errors.iter().any(|line| line.contains(&format!("{name} at"))), "{errors:?}");
        assert_eq!(read_file(&path), format, "it is left as it is");
    }
}

/// `FORMAT` of version 1: 32 bytes, 64 groups, store id 77.
const FORMAT_1: &[u8] = include_bytes!("../../log/testdata/format-1.golden");

#[test]
fn a_directory_of_before_the_first_release_is_refused() {
    let dir = new_dir();
    write_file(&dir.path().join("FORMAT"), FORMAT_1);
    let said = Start::with(&[]).refused(dir.path());
    assert!(said.contains("version 1") && said.contains("choose an empty directory"), "{said}");
    assert_eq!(files(dir.path(), ".wal"), Vec::<std::path::PathBuf>::new());
}

#[test]
fn a_directory_of_the_embedded_engine_is_refused() {
    let dir = new_dir();
    let options = log::LogOptions { group_count: 1, ..log::LogOptions::default() };
    let (disk, random) = (std::sync::Arc::new(env::RealDisk), &mut env::RealRandom);
    drop(log::DataDir::open(disk, dir.path(), options, log::Owner::ENGINE, random).unwrap());
    let said = Start::with(&["--groups", "1"]).refused(dir.path());
    assert!(said.contains("belongs to thalweg-engine") && said.contains("crate"), "{said}");
}

#[test]
fn a_directory_with_other_files_is_refused_and_left_alone() {
    let dir = new_dir();
    write_file(&dir.path().join("holiday.jpg"), b"not ours");
    let said = Start::with(&[]).refused(dir.path());
    assert!(said.contains(&dir.path().display().to_string()), "{said}");
    let names = files(dir.path(), "");
    assert_eq!(names, [dir.path().join("holiday.jpg")], "nothing was written");
}

#[test]
fn an_address_in_use_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let dir = new_dir();
    let said = Start::with(&["--admin-listen", &address]).refused(dir.path());
    assert!(said.contains(&address) && said.contains("admin_listen"), "{said}");
}

#[test]
fn too_few_descriptors_for_a_start_are_named_with_their_limit() {
    let few = ["sh", "-c", "ulimit -n 20; exec \"$@\"", "sh"];
    let start = Start::with(&["--admin-listen", "127.0.0.1:0"]).under(&few);
    let said = start.refused(new_dir().path());
    assert!(said.contains("may have 20 files and connections open"), "{said}");
}

#[test]
fn a_create_costs_one_commit_as_an_append_does() {
    let (server, _dir) = Server::start(&["--shards", "1", "--admin-listen", "127.0.0.1:0"]);
    let mut client = server.connect();
    client.put("/warm", TEXT).is(201);
    let batches = |server: &Server| server.metric("thalweg_batches_total");
    let before = batches(&server);
    for number in 0..100 {
        client.call("PUT", &format!("/c/{number}"), &[("Content-Type", TEXT)], b"body").is(201);
    }
    let creates = batches(&server) - before;
    for number in 0..100 {
        client.post(&format!("/c/{number}"), TEXT, b"body").is(204);
    }
    let appends = batches(&server) - before - creates;
    // A mark or a checkpoint may come in between.
    assert!((100..=105).contains(&creates), "{creates} commits for 100 creates");
    assert!((100..=105).contains(&appends), "{appends} commits for 100 appends");
}

#[test]
fn requests_of_one_moment_share_a_commit() {
    let (server, _dir) = Server::start(&["--shards", "1", "--admin-listen", "127.0.0.1:0"]);
    let mut clients: Vec<_> = (0..64).map(|_| server.connect()).collect();
    clients[0].put("/s", TEXT).is(201);
    let before = server.metric("thalweg_batches_total");
    for _ in 0..10 {
        for client in &mut clients {
            client.ask("POST", "/s", &[("Content-Type", TEXT)], b"x");
        }
        for client in &mut clients {
            client.answer().is(204);
        }
    }
    let batches = server.metric("thalweg_batches_total") - before;
    assert!(batches < 400, "{batches} commits for 640 appends");
    assert_eq!(server.connect().get("/s").is(200).body.len(), 640);
}

#[test]
fn a_repeated_create_and_a_refused_append_cost_no_commit() {
    let (server, _dir) = Server::start(&["--shards", "1", "--admin-listen", "127.0.0.1:0"]);
    let mut client = server.connect();
    client.put("/s", TEXT).is(201);
    let before = server.metric("thalweg_batches_total");
    for _ in 0..100 {
        client.put("/s", TEXT).is(200);
        client.post("/s", "text/html", b"x").fails(409, "content-type-mismatch");
        client.post("/none", TEXT, b"x").is(404);
    }
    let batches = server.metric("thalweg_batches_total") - before;
    assert!(batches <= 2, "{batches} commits for nothing");
}

#[test]
fn a_second_start_with_the_same_settings_names_the_lock_and_its_holder() {
    let (server, dir) = Server::start(&["--admin-listen", "127.0.0.1:0"]);
    let admin = server.admin_address().to_string();
    let said = Start::with(&["--admin-listen", &admin]).refused(dir.path());
    assert!(said.contains(&format!("locked by process {}", server.pid())), "{said}");
    assert!(!said.contains("admin"), "{said}");
}

#[test]
fn a_disk_that_is_too_small_for_a_new_directory_is_named_with_what_is_needed() {
    // In memory, of which few machines have 256 GiB.
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let data = dir.path().join("not/there/yet");
    let large = ["--shards", "256", "--segment-bytes", "512MiB", "--wal-bytes-max", "2GiB"];
    let start = Start::with(&[&large[..], &["--admin-listen", "127.0.0.1:0"]].concat());
    let said = start.refused(&data);
    assert!(said.contains("262656 MiB") && said.contains("MiB free"), "{said}");
    assert!(said.contains("segment_bytes"), "{said}");
    assert!(!said.contains("listen"), "nothing was begun: {said}");
    assert!(files(dir.path(), "").is_empty(), "nothing was made");
}
