//! A clock that is not believed: a start after longer than the setting allows.

mod harness;

use harness::{Server, Start, TEXT, new_dir, pause, until};

fn head(server: &Server) -> u16 {
    let mut client = server.connect();
    client.ask("HEAD", "/mortal", &[], b"");
    client.answer_to_head().status
}

#[test]
fn nothing_expires_after_a_long_pause_until_an_operator_confirms_the_clock() {
    let dir = new_dir();
    let flags = ["--clock-jump-ms-max", "1500", "--admin-listen", "127.0.0.1:0"];
    let server = Start::with(&flags).serve(dir.path());
    let lifetime = [("Content-Type", TEXT), ("Stream-TTL", "1")];
    server.connect().call("PUT", "/mortal", &lifetime, b"").is(201);
    assert_eq!(server.metric("thalweg_clock_ahead_ms"), 0);
    server.kill();
    pause(3_000);
    let server = Start::with(&flags).serve(dir.path());
    until("the shard says that it does not believe the clock", || {
        server.metric("thalweg_clock_ahead_ms") > 1_500
    });
    server.awaited_lines("the clock has jumped ahead");
    pause(2_500);
    assert_eq!(head(&server), 200, "its lifetime and what a crash forgives are long over");
    let mut admin = server.connect_admin();
    admin.send(b"PUT /clock/confirm HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
    admin.answer().is(200);
    until("the stream has expired", || head(&server) == 404);
    until("the clock is believed", || server.metric("thalweg_clock_ahead_ms") == 0);
    let asked = server.admin("/clock/confirm");
    assert_eq!(asked.status, 405, "to look changes nothing");
}
