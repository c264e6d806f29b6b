//! A server with an access file, from `thalweg token add` to the answers.

mod harness;

use harness::{Answer, Client, Server, Start, TEXT, new_dir, read_file, until, write_file};
use std::path::Path;
use std::process::{Command, Output};

/// `thalweg token` on the access file of `dir`.
fn token(dir: &Path, command: &str, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_thalweg"))
        .args(["token", command])
        .args(arguments)
        .env("THALWEG_ACCESS_FILE", dir.join("access.toml"))
        .current_dir(dir)
        .output()
        .expect("the binary runs")
}

/// What a command printed, and nothing else on standard error.
#[track_caller]
fn printed(output: Output) -> String {
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && complaint.is_empty(), "{complaint}");
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn refused(output: Output) -> String {
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr).unwrap()
}

/// A new token, as a field of a request.
#[track_caller]
fn add(dir: &Path, id: &str, grant: &str, more: &[&str]) -> String {
    let arguments = [&["--id", id, "--grant", grant], more].concat();
    let secret = printed(token(dir, "add", &arguments));
    assert_eq!(secret.lines().count(), 1, "the secret stands alone");
    assert!(secret.starts_with(&format!("thw_{id}_")), "{secret}");
    format!("Bearer {}", secret.trim_end())
}

fn serve(dir: &Path, flags: &[&str]) -> Server {
    let file = dir.join("access.toml");
    let flags = [flags, &["--access-file", file.to_str().unwrap()]].concat();
    Start::with(&flags).serve(&dir.join("data"))
}

fn create(client: &mut Client, path: &str, who: &str) -> u16 {
    client.call("PUT", path, &[("Content-Type", TEXT), ("Authorization", who)], b"").status
}

#[test]
fn a_token_is_added_used_listed_and_removed() {
    let dir = new_dir();
    let ci = add(dir.path(), "ci", "create,read,append logs/", &[]);
    let all = add(dir.path(), "all", "* **", &["--for", "90d"]);
    let text = String::from_utf8(read_file(&dir.path().join("access.toml"))).unwrap();
    assert!(text.starts_with("# Who may do what.") && text.matches("# Who").count() == 1, "{text}");
    // The secret is of 43 characters, and `_` may be among them.
    let secret_of = |who: &str, id: &str| who[format!("Bearer thw_{id}_").len()..][..43].to_owned();
    let secrets = [secret_of(&ci, "ci"), secret_of(&all, "all")];
    assert!(secrets.iter().all(|secret| !text.contains(secret.as_str())), "{text}");
    let listed = printed(token(dir.path(), "ls", &[]));
    assert!(listed.starts_with("ci\tnever\tcreate,read,append logs/\nall\t20"), "{listed}");
    let server = serve(dir.path(), &[]);
    let mut client = server.connect();
    assert_eq!(create(&mut client, "/logs/1", &ci), 201);
    assert_eq!(create(&mut client, "/other", &ci), 403);
    assert_eq!(create(&mut client, "/other", &all), 201);
    client.get("/other").fails(401, "token-missing");
    client.get("/nothing").fails(401, "token-missing");
    server.stop();

    printed(token(dir.path(), "rm", &["ci"]));
    assert!(refused(token(dir.path(), "rm", &["ci"])).contains("no token `ci`"));
    let server = serve(dir.path(), &[]);
    let mut client = server.connect();
    let answer = client.call("GET", "/logs/1", &[("Authorization", &ci)], b"");
    let challenge = answer.fails(401, "token-invalid");
    assert!(challenge.field("WWW-Authenticate").unwrap().contains("invalid_token"));
    client.call("GET", "/logs/1", &[("Authorization", &all)], b"").is(200);
    server.stop();
}

#[test]
fn a_producer_without_the_right_is_denied_with_401() {
    let dir = new_dir();
    let reader = add(dir.path(), "reader", "read **", &[]);
    let server = serve(dir.path(), &["--anonymous", "all"]);
    let mut client = server.connect();
    client.put("/s", TEXT).is(201);
    let who = ("Authorization", reader.as_str());
    let numbers = [("Producer-Id", "p"), ("Producer-Epoch", "0"), ("Producer-Seq", "0")];
    let fields = [&[who, ("Content-Type", TEXT)], &numbers[..]].concat();
    client.call("POST", "/s", &fields, b"x").fails(401, "producer-denied");
    client.call("POST", "/s", &fields[..2], b"x").fails(403, "access-denied");
    assert!(client.read_all("/s").is_empty());
}

#[test]
fn a_signed_url_reads_one_stream_without_a_header() {
    let dir = new_dir();
    let key = dir.path().join("web.key");
    write_file(&key, &[7; 32]);
    write_file(
        &dir.path().join("access.toml"),
        b"[[signing_key]]\nid = \"web\"\nsecret_file = \"web.key\"\ngrants = [\"read chat/\"]\n",
    );
    let said = refused(token(dir.path(), "check", &[]));
    assert!(
        said.contains("access.toml:3: web.key can be read") && said.contains("chmod o="),
        "{said}"
    );
    close_to_others(&key);
    assert!(printed(token(dir.path(), "check", &[])).contains("1 signing keys"));
    let all = add(dir.path(), "all", "* **", &[]);
    let server = serve(dir.path(), &[]);
    let mut client = server.connect();
    assert_eq!(create(&mut client, "/chat/4%202", &all), 201);
    let sign = |path: &str| {
        let arguments = [path, "--key-file", "web.key", "--key", "web"];
        let url = printed(token(dir.path(), "sign", &arguments));
        url.trim_end().strip_prefix("/v1/stream").unwrap().to_owned()
    };
    let url = sign("chat/4 2");
    let answer = client.get(&format!("{url}&offset=-1")).is(200);
    assert!(answer.field("Cache-Control").unwrap().starts_with("private"), "{}", answer.head);
    client.get(&url.replace("4%202", "43")).fails(401, "token-invalid");
    client.call("POST", &url, &[("Content-Type", TEXT)], b"x").fails(403, "access-denied");
    let below = sign("chat/");
    client.get(&below.replacen("/chat/?", "/chat/4%202?", 1)).is(200);
    let beside = sign("other");
    client.get(&beside).fails(403, "access-denied");
    let arguments = ["/v1/stream/chat/42", "--key-file", "web.key", "--key", "web"];
    let said = refused(token(dir.path(), "sign", &arguments));
    assert!(said.contains("write `chat/42`, not `/v1/stream/chat/42`"), "{said}");
}

/// As an operator does it.
fn close_to_others(path: &Path) {
    assert!(Command::new("chmod").arg("o=").arg(path).status().unwrap().success());
}

#[test]
fn an_address_that_others_can_reach_needs_an_access_file_or_a_word() {
    let dir = new_dir();
    let said = Start::with(&["--listen", "0.0.0.0:0"]).refused(&dir.path().join("data"));
    assert!(said.contains("access_file") && said.contains("anonymous = \"all\""), "{said}");
    let start = Start::with(&["--listen", "0.0.0.0:0", "--anonymous", "all"]);
    start.serve(&dir.path().join("data")).connect().get("/s").fails(404, "stream-not-found");
}

#[test]
fn a_wrong_access_file_is_refused_with_every_line() {
    let dir = new_dir();
    let file = dir.path().join("access.toml");
    write_file(&file, b"[anonymous]\ngrants = [\"raed x/\"]\n[[tokn]]\nid = \"a\"\n");
    let flags = ["--access-file", file.to_str().unwrap()];
    let said = Start::with(&flags).refused(&dir.path().join("data"));
    assert!(said.contains("access.toml:2") && said.contains("access.toml:3"), "{said}");
    let checked = refused(token(dir.path(), "check", &[]));
    assert!(checked.contains("access.toml:2") && checked.contains("access.toml:3"), "{checked}");
}

fn get(client: &mut Client, path: &str, who: &str) -> u16 {
    client.call("GET", path, &[("Authorization", who)], b"").status
}

#[test]
fn a_changed_file_counts_on_open_connections_and_ends_live_readers() {
    let dir = new_dir();
    let all = add(dir.path(), "all", "* **", &[]);
    let ci = add(dir.path(), "ci", "read **", &[]);
    let server = serve(dir.path(), &["--admin-listen", "127.0.0.1:0"]);
    let mut client = server.connect();
    assert_eq!(create(&mut client, "/s", &all), 201);
    let mut live = server.connect();
    live.ask("GET", "/s?offset=-1&live=sse", &[("Authorization", &ci)], b"");
    assert_eq!(live.answer_to_head().status, 200);
    assert_eq!(get(&mut client, "/s", &ci), 200);
    printed(token(dir.path(), "rm", &["ci"]));
    until("the file is noticed", || get(&mut client, "/s", &ci) == 401);
    let mut last = Vec::new();
    while let Some(chunk) = live.chunk() {
        last = chunk;
    }
    let last = String::from_utf8(last).unwrap();
    assert!(last.contains("event: control") && last.contains("streamNextOffset"), "{last}");
    // On the connection that the reader had.
    assert_eq!(get(&mut live, "/s", &ci), 401);
    assert_eq!(get(&mut live, "/s", &all), 200);
    assert!(server.metric("thalweg_denied_total") >= 2);
    // The admin port does it at once. What is wrong changes nothing, and is reported.
    let late = add(dir.path(), "late", "read **", &[]);
    assert_eq!(reload(&server).status, 200);
    assert_eq!(get(&mut client, "/s", &late), 200);
    write_file(&dir.path().join("access.toml"), b"[[tokn]]\n");
    let answer = reload(&server);
    assert_eq!(answer.status, 422);
    assert!(answer.text().contains("access.toml:1"), "{}", answer.text());
    assert_eq!(get(&mut client, "/s", &all), 200);
    server.awaited_lines("a reload failed");
    write_file(&dir.path().join("access.toml"), b"[anonymous]\ngrants = [\"read s\"]\n");
    let pid = server.pid().to_string();
    assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
    until("the signal is followed", || get(&mut client, "/s", &all) == 401);
    client.get("/s").is(200);
    server.stop();
}

fn reload(server: &Server) -> Answer {
    let mut client = server.connect_admin();
    client.send(b"PUT /reload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
    client.answer()
}

#[test]
fn a_page_of_another_origin_or_of_a_rebound_name_changes_nothing() {
    let dir = new_dir();
    let server = Start::with(&[]).serve(dir.path());
    let mut client = server.connect();
    client.put("/s", TEXT).is(201);
    let page = ("Origin", "https://evil.example");
    let answer = client.call("DELETE", "/s", &[page], b"").fails(403, "foreign-origin");
    assert_eq!(answer.field("Access-Control-Allow-Origin"), None);
    client.call("POST", "/s", &[page, ("Content-Type", TEXT)], b"x").fails(403, "foreign-origin");
    client.call("GET", "/s", &[page], b"").is(200);
    client
        .call("POST", "/s", &[("Origin", "http://localhost:3000"), ("Content-Type", TEXT)], b"y")
        .is(204);
    client.send(b"GET /v1/stream/s HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    client.answer().fails(421, "foreign-host");
    assert_eq!(client.read_all("/s"), b"y");
    server.stop();
    let flags = ["--allowed-hosts", "evil.example", "--cors-origins", "https://evil.example"];
    let server = Start::with(&flags).serve(dir.path());
    let mut client = server.connect();
    client.send(b"GET /v1/stream/s HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    client.answer().is(200);
    client.call("DELETE", "/s", &[page], b"").is(204);
    server.stop();
}

#[test]
fn pages_of_listed_origins_see_answers_and_send_what_they_like() {
    let dir = new_dir();
    let said = Start::with(&["--cors-credentials", "on"]).refused(dir.path());
    assert!(said.contains("cors_origins must be a list"), "{said}");
    let said =
        Start::with(&["--cors-credentials", "on", "--cors-origins", "*"]).refused(dir.path());
    assert!(said.contains("cors_origins must be a list"), "{said}");
    let origin = "https://app.example";
    for credentials in ["off", "on"] {
        let flags = ["--cors-origins", origin, "--cors-credentials", credentials];
        let server = Start::with(&flags).serve(dir.path());
        let mut client = server.connect();
        client.put("/s", TEXT);
        let preflight = [
            ("Origin", origin),
            ("Access-Control-Request-Method", "POST"),
            ("Access-Control-Request-Headers", "content-type,traceparent,x-of-the-page"),
        ];
        let answer = client.call("OPTIONS", "/s", &preflight, b"").is(204);
        let allowed = answer.field("Access-Control-Allow-Headers").unwrap();
        assert!(allowed.ends_with(", traceparent, x-of-the-page"), "{allowed}");
        let with_credentials = (credentials == "on").then_some("true");
        for answer in [
            answer,
            client.call("GET", "/s", &[("Origin", origin)], b"").is(200),
            client.call("GET", "/nothing", &[("Origin", origin)], b"").is(404),
            client.call("POST", "/s", &[("Origin", origin), ("Content-Type", TEXT)], b"x").is(204),
        ] {
            assert_eq!(answer.field("Access-Control-Allow-Origin"), Some(origin));
            assert_eq!(answer.field("Access-Control-Allow-Credentials"), with_credentials);
        }
        let other = client.call("GET", "/s", &[("Origin", "https://evil.example")], b"").is(200);
        assert_eq!(other.field("Access-Control-Allow-Origin"), None);
        assert_eq!(other.field("Access-Control-Allow-Credentials"), None);
        server.stop();
    }
}
