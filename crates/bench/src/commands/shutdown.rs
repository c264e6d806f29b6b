//! Time from SIGTERM to exit with idle connections and live readers.

use super::{Bench, Calls};
use crate::api::{ApiStyle, MEDIA_TYPE};
use crate::cli::Shutdown;
use crate::failure::{Failure, Outcome};
use crate::load::driver::Driver;
use crate::load::events::Follower;
use crate::report::Run;
use model::ReadFrom;
use protocol::client::{Target, put_head, put_read};
use protocol::request::Live;
use std::time::{Duration, Instant};

const PATH: &str = "bench/live";
const SETUP_LIMIT: Duration = Duration::from_secs(30);
const EXIT_LIMIT: Duration = Duration::from_secs(60);

/// Idle connections first, then one connection per follower.
struct Clients {
    driver: Driver,
    followers: Vec<Follower>,
    idle: usize,
    /// Idle connections that were answered once.
    idle_answered: usize,
    /// They leave a connection open that the server has ended.
    stubborn: bool,
}

pub(super) fn run(bench: &Bench, asked: &Shutdown) -> Outcome<Run> {
    let mut server = bench.server()?;
    let mut run = bench.start_run("shutdown", &server);
    run.setting("idle", asked.idle);
    run.setting("readers", asked.readers);
    run.setting("stubborn", asked.stubborn);
    let calls = Calls::new(&server)?;
    calls.wait(calls.client.create(PATH, MEDIA_TYPE))?;

    let host = server.address.to_string();
    let driver = Driver::connect(server.address, asked.idle + asked.readers)?;
    let followers = (0..asked.readers).map(|_| Follower::new(ApiStyle::Durable)).collect();
    let Shutdown { idle, stubborn, .. } = *asked;
    let mut clients = Clients { driver, followers, idle, idle_answered: 0, stubborn };
    clients.set_up(&host)?;
    let controls_before: Vec<u64> = clients.followers.iter().map(|f| f.controls).collect();

    let start = Instant::now();
    server.ask_to_end()?;
    let status = loop {
        if let Some(status) = server.ended()? {
            break status;
        }
        if start.elapsed() > EXIT_LIMIT {
            return Err(Failure::new(format!("the server runs on {EXIT_LIMIT:?} after SIGTERM")));
        }
        clients.turn(Duration::from_millis(1))?;
    };
    let took = start.elapsed();
    while clients.turn(Duration::from_millis(10))? > 0 {}

    let pairs = || clients.followers.iter().zip(&controls_before);
    let told = pairs().filter(|(follower, before)| follower.controls > **before).count();
    let complete = clients.followers.iter().filter(|follower| follower.is_complete).count();
    run.figure("SIGTERM until exit", took.as_secs_f64() * 1e3, "ms");
    run.figure("readers", asked.readers as f64, "");
    run.figure("readers that got a last control event", told as f64, "");
    run.figure("readers whose answer was ended whole", complete as f64, "");
    run.check(format!("the server ended with success ({status})"), status.success());
    run.check("every reader got a last control event", told == asked.readers);
    run.check("every reader's answer was ended whole", complete == asked.readers);
    Ok(run)
}

impl Clients {
    /// Uses every idle connection once and starts every follower.
    fn set_up(&mut self, host: &str) -> Outcome<()> {
        let target = Target { host, path: PATH };
        for (at, socket) in self.driver.sockets.iter_mut().enumerate() {
            if at < self.idle {
                put_head(&mut socket.output, target);
            } else {
                put_read(&mut socket.output, target, ReadFrom::Now, Live::Sse, None);
            }
            socket.flush();
        }
        let deadline = Instant::now() + SETUP_LIMIT;
        while self.idle_answered < self.idle || self.followers.iter().any(|f| f.controls == 0) {
            if Instant::now() > deadline {
                return Err(Failure::new("not every connection was answered before SIGTERM"));
            }
            self.turn(Duration::from_millis(10))?;
        }
        Ok(())
    }

    /// Takes what has come; how many bytes.
    fn turn(&mut self, limit: Duration) -> Outcome<usize> {
        let ready = self.driver.wait(limit)?;
        let mut taken = 0;
        for &at in &ready {
            taken += self.driver.fill(at);
            let socket = &mut self.driver.sockets[at];
            if let Some(follower) = at.checked_sub(self.idle) {
                self.followers[follower].take(socket, |_| {})?;
            } else if socket.input().ends_with(b"\r\n\r\n") {
                self.idle_answered += 1;
                socket.consume(socket.input().len());
            }
            let socket = &mut self.driver.sockets[at];
            if socket.is_ended && !self.stubborn {
                socket.close();
            }
        }
        self.driver.done(ready);
        Ok(taken)
    }
}
