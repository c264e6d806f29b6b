//! A disk that is full, one that refuses work for other reasons, and a sync that fails.
//!
//! The first needs root and a loop device, the others `strace`. Where they are missing the test says
//! so and passes.

mod harness;

use harness::{
    BINARY, Client, Numbers, SMALL_LOG, Server, Start, TEXT, Watch, make_dir, make_sparse, new_dir,
    pause, remove_file, until, write_file,
};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

fn small() -> Start {
    Start::with(&[&SMALL_LOG[..], &["--admin-listen", "127.0.0.1:0"]].concat())
}

/// A small file system of its own, unmounted at the end.
struct SmallDisk {
    dir: TempDir,
}

impl SmallDisk {
    /// `None` where file systems cannot be mounted.
    fn mount(mib: u64) -> Option<Self> {
        let dir = new_dir();
        let image = dir.path().join("image");
        make_sparse(&image, mib << 20);
        make_dir(&dir.path().join("mounted"));
        let disk = Self { dir };
        let made = quiet(Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0"]).arg(&image));
        let mount = |disk: &Self| {
            quiet(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(disk.path()))
        };
        (made && mount(&disk)).then_some(disk)
    }

    fn path(&self) -> std::path::PathBuf {
        self.dir.path().join("mounted")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        quiet(Command::new("umount").arg("-l").arg(self.path()));
    }
}

fn quiet(command: &mut Command) -> bool {
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// Appends until nothing can be freed any more. Appends are answered 507, and `/readyz` reports it.
fn fill(server: &Server, acknowledged: &mut Vec<u8>, numbers: &mut Numbers) {
    let mut client = server.connect();
    let watch = Watch::start();
    let mut refused = 0;
    while refused < 4 {
        assert!(watch.elapsed() < Duration::from_secs(60), "the disk does not fill up");
        let body = numbers.bytes(50_000);
        let answer = client.post("/s", BINARY, &body);
        match answer.status {
            204 => {
                acknowledged.extend(body);
                refused = 0;
            }
            503 => assert!(answer.field("Retry-After").is_some()),
            507 => {
                let problem = answer.fails(507, "disk-full");
                assert_eq!(problem.json()["applied"], false);
                refused += 1;
                pause(100);
            }
            other => panic!("an append was answered {other}"),
        }
    }
    until("the operator is informed", || {
        let ready = server.admin("/readyz");
        ready.status == 503 && ready.text().contains("disk_full")
    });
}

#[test]
fn a_full_disk_is_an_answer_and_passes() {
    let Some(disk) = SmallDisk::mount(64) else {
        return eprintln!("skipped: no loop device can be mounted here");
    };
    let data = disk.path().join("data");
    let ballast = disk.path().join("ballast");
    make_dir(&data);
    // More than the stream will hold: what is freed must do for merging all of its chunks into one.
    write_file(&ballast, &vec![1; 32 << 20]);
    let server = small().serve(&data);
    let mut client = server.connect();
    client.put("/s", BINARY).is(201);
    let mut acknowledged = Vec::new();
    let mut numbers = Numbers::new(1);
    fill(&server, &mut acknowledged, &mut numbers);
    assert!(client.read_all("/s") == acknowledged, "reads go on");
    let errors = server.awaited_lines("the disk refuses").len();
    assert!((1..20).contains(&errors), "{errors} errors in the log");

    remove_file(&ballast);
    until("appends are taken again", || {
        let body = numbers.bytes(50_000);
        let taken = client.post("/s", BINARY, &body).status == 204;
        if taken {
            acknowledged.extend(body);
        }
        taken
    });
    until("the server is ready again", || server.admin("/readyz").status == 200);
    assert!(client.read_all("/s") == acknowledged);
    server.kill();
    let server = small().serve(&data);
    assert!(server.connect().read_all("/s") == acknowledged, "every acknowledged byte is there");
}

#[test]
fn a_full_disk_keeps_everything_over_kill_9() {
    let Some(disk) = SmallDisk::mount(48) else {
        return eprintln!("skipped: no loop device can be mounted here");
    };
    let mut acknowledged = Vec::new();
    let mut numbers = Numbers::new(2);
    let server = small().serve(&disk.path());
    let mut client = server.connect();
    client.put("/s", BINARY).is(201);
    fill(&server, &mut acknowledged, &mut numbers);
    server.kill();
    let server = small().serve(&disk.path());
    let mut client = server.connect();
    assert!(client.read_all("/s") == acknowledged, "a start on a full disk serves reads");
    // Deleting needs a record: there may be room for it or not, but nothing else.
    let status = client.delete("/s").status;
    assert!([204, 507, 503].contains(&status), "{status}");
}

/// Runs the server with its `number`-th sync of each thread failing.
fn with_failing_sync(number: u32, dir: &Path) -> Option<Server> {
    if !quiet(Command::new("strace").arg("-V")) {
        eprintln!("skipped: strace is not installed");
        return None;
    }
    let inject = format!("inject=fdatasync:error=EIO:when={number}+");
    let strace =
        ["strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync", "-e", &inject];
    let flags = ["--shards", "1", "--admin-listen", "127.0.0.1:0"];
    Some(Start::with(&flags).under(&strace).serve(dir))
}

#[test]
fn after_a_failed_sync_nothing_is_acknowledged() {
    let dir = new_dir();
    let first = Start::with(&["--shards", "1"]).serve(dir.path());
    first.connect().put("/s", TEXT).is(201);
    first.stop();
    let Some(server) = with_failing_sync(20, dir.path()) else { return };
    let mut client = server.connect();
    let mut acknowledged = String::new();
    let mut number = 0;
    let failed = loop {
        let body = format!("{number},");
        let answer = client.post("/s", TEXT, body.as_bytes());
        if answer.status != 204 {
            break answer;
        }
        acknowledged.push_str(&body);
        number += 1;
        assert!(number < 1000, "no sync failed");
    };
    assert!(number > 2, "the first appends are taken");
    let problem = failed.fails(500, "write-unknown");
    assert_eq!(problem.json()["applied"], "unknown");
    for _ in 0..10 {
        let refused = client.post("/s", TEXT, b"later").fails(503, "storage-failed");
        assert_eq!(refused.json()["applied"], false);
        client.put("/new", TEXT).fails(503, "storage-failed");
    }
    assert_eq!(client.get("/s").is(200).text(), acknowledged, "reads show what is durable");
    until("the operator is informed", || {
        let ready = server.admin("/readyz");
        ready.status == 503 && ready.text().contains("poisoned")
    });
    assert_eq!(server.awaited_lines("a write or sync failed").len(), 1);
    server.stop();
    let server = Start::with(&["--shards", "2"]).serve(dir.path());
    let stored = server.connect().get("/s").is(200).text();
    assert!(stored.starts_with(&acknowledged), "{stored} lacks some of {acknowledged}");
    assert!(!stored.contains("later"));
    server.connect().post("/s", TEXT, b"on").is(204);
}

#[test]
fn repeats_of_an_append_whose_sync_failed_are_not_acknowledged() {
    let dir = new_dir();
    let first = Start::with(&["--shards", "1"]).serve(dir.path());
    first.connect().put("/s", TEXT).is(201);
    first.stop();
    let Some(server) = with_failing_sync(12, dir.path()) else { return };
    let mut client = server.connect();
    let produce = |client: &mut Client, seq: u32| {
        let seq = seq.to_string();
        let fields = [
            ("Content-Type", TEXT),
            ("Producer-Id", "p"),
            ("Producer-Epoch", "0"),
            ("Producer-Seq", seq.as_str()),
        ];
        client.call("POST", "/s", &fields, b"x").status
    };
    let failed = (0..1000).find(|seq| produce(&mut client, *seq) != 200).expect("a sync fails");
    for _ in 0..5 {
        assert_eq!(produce(&mut client, failed), 503, "not durable, so not a duplicate");
    }
    assert_eq!(produce(&mut client, failed - 1), 204, "what is durable is a duplicate");
    let status = client.call("POST", "/s", &[("Stream-Closed", "true")], b"").status;
    assert_eq!(status, 503);
}

/// `strace` on a server that runs already: it opens no file. Files can be opened again when this is dropped.
struct FailingOpens(Child);

impl FailingOpens {
    /// `None` where it may not look into another process.
    fn attach(server: &Server, error: &str) -> Option<Self> {
        let inject = format!("inject=openat:error={error}");
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=openat", "-e", &inject, "-p"]);
        let mut strace = Self(command.arg(server.pid().to_string()).spawn().expect("strace runs"));
        let mut ended = None;
        until("strace has attached, or may not", || {
            ended = strace.0.try_wait().expect("it can be asked");
            ended.is_some() || server.status("TracerPid:") > 0
        });
        ended.is_none().then_some(strace)
    }
}

impl Drop for FailingOpens {
    fn drop(&mut self) {
        // It detaches at this signal; at its death the kernel does it.
        let pid = self.0.id().to_string();
        quiet(Command::new("kill").args(["-TERM", &pid]));
        let _ = self.0.wait();
    }
}

#[test]
fn the_operator_is_told_why_the_disk_refuses_work() {
    const TROUBLES: [(&str, &str); 4] = [
        ("ENOSPC", "disk_full"),
        ("EDQUOT", "disk_quota_used_up"),
        ("EMFILE", "out_of_descriptors"),
        ("EIO", "disk_failing"),
    ];
    if !quiet(Command::new("strace").arg("-V")) {
        return eprintln!("skipped: strace is not installed");
    }
    let dir = new_dir();
    let flags = ["--shards", "1", "--admin-listen", "127.0.0.1:0"];
    let server = Start::with(&[&SMALL_LOG[..], &flags].concat()).serve(dir.path());
    let (mut client, mut numbers) = (server.connect(), Numbers::new(3));
    client.put("/s", BINARY).is(201);
    let mut acknowledged = Vec::new();
    let mut append = |client: &mut Client| {
        let body = numbers.bytes(50_000);
        let status = client.post("/s", BINARY, &body).status;
        if status == 204 {
            acknowledged.extend(body);
        }
        status
    };
    for (error, reason) in TROUBLES {
        let Some(failing) = FailingOpens::attach(&server, error) else {
            return eprintln!("skipped: strace may not attach to a process");
        };
        let mut ready = server.admin("/readyz");
        until("the operator is informed", || {
            append(&mut client);
            ready = server.admin("/readyz");
            ready.status == 503
        });
        assert_eq!(ready.json()["reasons"][0]["reason"], reason, "{error}: {}", ready.text());
        for (_, other) in TROUBLES {
            let is_told = server.metric(&format!("thalweg_{other}"));
            assert_eq!(is_told, u64::from(other == reason), "{error}: thalweg_{other}");
        }
        drop(failing);
        until("the trouble is over", || {
            append(&mut client);
            server.admin("/readyz").status == 200
        });
        assert_eq!(server.metric(&format!("thalweg_{reason}")), 0);
    }
    assert_eq!(append(&mut client), 204);
    assert!(client.read_all("/s") == acknowledged, "nothing is lost");
    server.stop();
}
