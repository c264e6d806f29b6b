//! TLS: which certificate a client gets, what is refused, what changes while the server runs.

mod harness;

use harness::client::request;
use harness::tls::{Authority, Pair, connect_trusting, set_mode};
use harness::{Answer, BINARY, Numbers, Server, Start, TEXT, new_dir, pause, until, write_file};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tempfile::TempDir;

/// A server with the certificate of `pair`, further flags, and where its files are.
fn serve(pair: &Pair, flags: &[&str]) -> (Server, TempDir) {
    let dir = new_dir();
    let (cert, key) = pair.write(dir.path(), "server");
    let named = ["--tls-cert", cert.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
    let server = Start::with(&[&named, flags].concat()).serve(&dir.path().join("data"));
    (server, dir)
}

fn reload(server: &Server) -> Answer {
    let mut client = server.connect_admin();
    client.send(b"PUT /reload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
    client.answer()
}

fn put(path: &str) -> Vec<u8> {
    request("PUT", path, &[("Content-Type", TEXT)], b"hello")
}

#[test]
fn a_server_on_a_laptop_makes_its_certificate_and_keeps_it() {
    let dir = new_dir();
    let data = dir.path().join("data");
    let start = Start::with(&["--tls-self-signed", "on"]);
    let server = start.serve(&data);
    let file = data.join("tls/self-signed.crt");
    let mut secure = connect_trusting(&file, server.address(), &[]);
    let (head, _) = secure.ask(&put("/a"));
    assert!(head.starts_with("HTTP/1.1 201 "), "{head}");
    assert!(head.contains("https://localhost/v1/stream/a"), "{head}");
    let first = secure.certificate();
    assert_eq!(server.awaited_lines("sha256:").len(), 1, "its fingerprint is in the log");
    server.stop();
    let server = start.serve(&data);
    assert_eq!(connect_trusting(&file, server.address(), &[]).certificate(), first);
    server.stop();
}

#[test]
fn a_client_learns_which_http_is_spoken() {
    let authority = Authority::new();
    let (server, _dir) = serve(&authority.sign(&["localhost"]), &[]);
    let connect = |protocols: &[&str]| authority.connect(server.address(), "localhost", protocols);
    assert_eq!(connect(&["http/1.1", "h2"]).protocol().as_deref(), Some("h2"));
    let mut secure = connect(&["http/1.1"]);
    assert_eq!(secure.protocol().as_deref(), Some("http/1.1"));
    assert!(secure.ask(&put("/a")).0.starts_with("HTTP/1.1 201 "));
    assert_eq!(connect(&[]).protocol(), None);
    let error = connect(&["h3"]).shake().unwrap_err();
    assert!(error.contains("NoApplicationProtocol"), "{error}");
    server.stop();
    let (server, _dir) = serve(&authority.sign(&["localhost"]), &["--http2", "off"]);
    let mut secure = authority.connect(server.address(), "localhost", &["h2", "http/1.1"]);
    assert_eq!(secure.protocol().as_deref(), Some("http/1.1"));
    server.stop();
}

#[test]
fn large_bodies_go_both_ways_and_come_whole() {
    let authority = Authority::new();
    let (server, _dir) = serve(&authority.sign(&["localhost"]), &[]);
    let mut secure = authority.connect(server.address(), "localhost", &[]);
    let body = Numbers::new(1).bytes(5 << 20);
    let create = request("PUT", "/large", &[("Content-Type", BINARY)], &body);
    assert!(secure.ask(&create).0.starts_with("HTTP/1.1 201 "));
    let get = request("GET", "/large", &[], b"");
    let (_, first) = secure.ask(&get);
    let next =
        request("GET", &format!("/large?offset={}", harness::client::offset(4 << 20)), &[], b"");
    let (_, second) = secure.ask(&next);
    assert_eq!([first, second].concat(), body);
    // A client that is slower than the server waits to close has all of its last answer.
    let close = request("GET", "/large", &[("Connection", "close")], b"");
    let mut slow = authority.connect(server.address(), "localhost", &[]);
    slow.send(&close);
    pause(2_500);
    let (mut got, mut buffer) = (0, [0; 16 << 10]);
    loop {
        match slow.read(&mut buffer) {
            0 => break,
            count => got += count,
        }
    }
    assert!(got > 4 << 20, "{got} bytes came");
    server.stop();
}

#[test]
fn a_client_gets_the_certificate_for_the_name_that_it_asks_for() {
    let authority = Authority::new();
    let dir = new_dir();
    let certs = dir.path().join("certs");
    harness::make_dir(&certs);
    let pairs = [("1", "a.example"), ("2", "*.b.example"), ("3", "c.b.example")];
    for (file, name) in pairs {
        authority.sign(&[name]).write(&certs, file);
    }
    let start = Start::with(&["--tls-dir", certs.to_str().unwrap()]);
    let server = start.serve(&dir.path().join("data"));
    let asks = |name: &str| authority.connect(server.address(), name, &[]).shake();
    for name in ["a.example", "x.b.example", "c.b.example"] {
        assert_eq!(asks(name), Ok(()), "{name}");
    }
    let error = asks("elsewhere.example").unwrap_err();
    assert!(error.contains("not valid for name"), "the first certificate answers: {error}");
    server.stop();
    authority.sign(&["A.example"]).write(&certs, "4");
    let said = start.refused(&dir.path().join("data"));
    assert!(said.contains("4.crt") && said.contains("a.example is in"), "{said}");
}

#[test]
fn wrong_files_are_refused_with_what_is_wrong() {
    let authority = Authority::new();
    let dir = new_dir();
    let (cert, key) = authority.sign(&["localhost"]).write(dir.path(), "one");
    let (_, other) = authority.sign(&["localhost"]).write(dir.path(), "two");
    let refused = |cert: &Path, key: &Path| {
        let flags = ["--tls-cert", cert.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
        Start::with(&flags).refused(&dir.path().join("data"))
    };
    let says = |said: String, what: &str| assert!(said.contains(what), "{what}: {said}");
    says(refused(&cert, &other), "the key does not belong to the certificate");
    says(refused(&dir.path().join("none"), &key), "none: it cannot be read");
    says(refused(&key, &key), "there is no certificate in it");
    says(refused(&cert, &cert), "there is no private key in it");
    set_mode(&key, 0o604);
    says(refused(&cert, &key), "others can read this key (mode 0604)");
    let said = Start::with(&["--listen", "https://127.0.0.1:0"]).refused(&dir.path().join("data"));
    says(said, "needs a certificate");
    assert!(!harness::is_there(&dir.path().join("data")), "nothing was made");
}

#[test]
fn who_speaks_plain_http_to_tls_or_tls_to_plain_http_is_told() {
    let authority = Authority::new();
    let (server, _dir) = serve(&authority.sign(&["localhost"]), &[]);
    let mut plain = server.connect();
    plain.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let answer = plain.answer();
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("use https://"), "{}", answer.text());
    server.stop();
    let (server, _dir) = Server::start(&[]);
    assert!(authority.connect(server.address(), "localhost", &[]).shake().is_err());
    server.stop();
}

#[test]
fn clients_show_certificates_where_they_must() {
    let authority = Authority::new();
    let dir = new_dir();
    let ca = dir.path().join("ca.pem");
    write_file(&ca, authority.pem().as_bytes());
    let flags = ["--tls-client-ca", ca.to_str().unwrap(), "--tls-client-auth", "required"];
    let (server, _dir) = serve(&authority.sign(&["localhost"]), &flags);
    let mut with = authority.connect_as(server.address(), &authority.sign(&["client"]));
    assert!(with.ask(&put("/a")).0.starts_with("HTTP/1.1 201 "));
    let foreign = Authority::new().sign(&["client"]);
    let mut buffer = [0];
    for mut refused in [
        authority.connect(server.address(), "localhost", &[]),
        authority.connect_as(server.address(), &foreign),
    ] {
        // A client of TLS 1.3 is done before the server has looked at its certificate.
        let _ = refused.shake();
        assert_eq!(refused.read(&mut buffer), 0);
    }
    server.stop();
}

#[test]
fn silent_clients_keep_no_place_from_others() {
    let authority = Authority::new();
    let flags = ["--tls-handshakes-max", "2", "--admin-listen", "127.0.0.1:0", "--shards", "1"];
    let (server, _dir) = serve(&authority.sign(&["localhost"]), &flags);
    let silent: Vec<_> = (0..6).map(|_| server.connect()).collect();
    until("all places are taken", || server.metric("thalweg_tls_handshakes_open") == 2);
    let mut one = authority.connect(server.address(), "localhost", &[]);
    assert!(one.ask(&put("/a")).0.starts_with("HTTP/1.1 201 "));
    drop(silent);
    server.stop();
    let (server, _dir) = serve(
        &authority.sign(&["localhost"]),
        &["--tls-handshake-timeout-ms", "200", "--admin-listen", "127.0.0.1:0"],
    );
    let mut silent = server.connect();
    assert!(silent.is_over(), "a handshake that does not begin ends in time");
    until("it is counted", || server.admin("/metrics").text().contains("result=\"timed_out\"} 1"));
    server.stop();
}

#[test]
fn certificates_change_under_connections_that_go_on() {
    let authority = Authority::new();
    let admin = ["--admin-listen", "127.0.0.1:0"];
    let (server, dir) = serve(&authority.sign(&["localhost"]), &admin);
    let connect = || authority.connect(server.address(), "localhost", &[]);
    let mut old = connect();
    assert!(old.ask(&put("/a")).0.starts_with("HTTP/1.1 201 "));
    let mut seen = vec![connect().certificate()];
    let mut is_new = || {
        let certificate = connect().certificate();
        let is_new = !seen.contains(&certificate);
        seen.push(certificate);
        is_new
    };
    // A signal, a call, and nothing but the files.
    authority.sign(&["localhost"]).write(dir.path(), "server");
    let pid = server.pid().to_string();
    assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
    until("the signal is followed", &mut is_new);
    authority.sign(&["localhost"]).write(dir.path(), "server");
    assert_eq!(reload(&server).status, 200);
    assert!(is_new(), "the call has waited for it");
    authority.sign(&["localhost"]).write(dir.path(), "server");
    until("the files are noticed", &mut is_new);
    // What is wrong changes nothing, and is reported.
    write_file(&dir.path().join("server.crt"), b"nonsense");
    let answer = reload(&server);
    assert_eq!(answer.status, 422);
    assert!(answer.text().contains("server.crt"), "{}", answer.text());
    assert!(!is_new());
    server.awaited_lines("a reload failed");
    let text = server.admin("/metrics").text();
    assert!(text.contains("thalweg_reloads_total 3"), "{text}");
    assert!(old.ask(&request("GET", "/a", &[], b"")).1 == b"hello");
    server.stop();
}

#[test]
fn reloads_fail_no_request() {
    let authority = Arc::new(Authority::new());
    let admin = ["--admin-listen", "127.0.0.1:0"];
    let (server, dir) = serve(&authority.sign(&["localhost"]), &admin);
    let is_over = Arc::new(AtomicBool::new(false));
    let address = server.address();
    // One keeps its connection, the others connect again for each request.
    let client = |number: usize| {
        let (authority, is_over) = (Arc::clone(&authority), Arc::clone(&is_over));
        harness::thread("client", move || {
            let mut client = authority.connect(address, "localhost", &[]);
            let path = format!("/{number}");
            assert!(client.ask(&put(&path)).0.starts_with("HTTP/1.1 201 "));
            while !is_over.load(Relaxed) {
                if number > 0 {
                    client = authority.connect(address, "localhost", &[]);
                }
                let append = request("POST", &path, &[("Content-Type", TEXT)], b"x");
                let (head, _) = client.ask(&append);
                assert!(head.starts_with("HTTP/1.1 204 "), "{head}");
            }
        })
    };
    let clients: Vec<_> = (0..4).map(client).collect();
    for _ in 0..20 {
        authority.sign(&["localhost"]).write(dir.path(), "server");
        assert_eq!(reload(&server).status, 200);
        pause(20);
    }
    is_over.store(true, Relaxed);
    clients.into_iter().for_each(|client| client.join().unwrap());
    assert!(server.admin("/metrics").text().contains("thalweg_reloads_total 20"));
    server.stop();
}
