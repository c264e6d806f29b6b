//! Clients of a crowd in a process of their own: both ends of all connections are more descriptors than many systems
//! give to one process.
//!
//! # How
//! The process connects, sends a request on each connection, and says so on a connection to the process that started it.
//! Then it does what a byte there asks for, and answers with a byte. First it takes what each connection has, then it
//! looks whether each has heard something more.

use crate::crowds::Crowd;
use clap::ValueEnum;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command};
use thalweg_counts::requests::Template;
use thalweg_server::descriptors;

/// Where the loop is, and where the process waits that started the clients.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Places {
    pub(crate) server: SocketAddr,
    pub(crate) starter: SocketAddr,
}

/// Clients, seen from the process with the loop.
#[derive(Debug)]
pub(crate) struct Audience {
    child: Child,
    listener: TcpListener,
    control: Option<TcpStream>,
}

impl Audience {
    pub(crate) fn start(crowd: Crowd, count: u64, server: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        listener.set_nonblocking(true).expect("a socket");
        let starter = listener.local_addr().expect("it is bound");
        let program = std::env::current_exe().expect("a program knows where it is");
        let name = crowd.to_possible_value().expect("no crowd is hidden");
        let mut command = Command::new(program);
        command.args([name.get_name(), "--count", &count.to_string()]);
        command.args(["--server", &server.to_string(), "--starter", &starter.to_string()]);
        let child = command.spawn().expect("the program starts again");
        Self { child, listener, control: None }
    }

    /// Whether all requests are sent.
    pub(crate) fn is_ready(&mut self) -> bool {
        match self.listener.accept() {
            Ok((control, _)) => {
                control.set_nonblocking(false).expect("a socket");
                self.control = Some(control);
                true
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let ended = self.child.try_wait().expect("a process of ours");
                assert!(ended.is_none(), "the clients have ended");
                false
            }
            Err(error) => panic!("the clients cannot be heard: {error}"),
        }
    }

    /// Has all clients take what they have.
    ///
    /// # Panics
    /// If it is not ready, or if one of them has heard nothing since the last call.
    pub(crate) fn check_all_heard(&mut self) {
        let control = self.control.as_mut().expect("the clients are ready");
        let mut byte = [0];
        control.write_all(&byte).expect("the clients listen");
        control.read_exact(&mut byte).expect("each client has heard something");
    }
}

impl Drop for Audience {
    fn drop(&mut self) {
        self.control = None;
        // It ends as its connection does.
        let _ = self.child.wait();
    }
}

/// The process of the clients.
///
/// # Panics
/// If one of them has heard nothing when it is asked.
pub(crate) fn run(mut request: Template, count: u64, places: Places) {
    descriptors::make_room(usize::try_from(count).expect("a number of sockets"));
    let connect = |place| TcpStream::connect(place).expect("somebody listens");
    let mut sockets = Vec::new();
    for _ in 0..count {
        let mut socket = connect(places.server);
        socket.write_all(request.of(0)).expect("a request fits a socket");
        socket.set_nonblocking(true).expect("a socket");
        sockets.push(socket);
    }
    let mut control = connect(places.starter);
    let (mut byte, mut buffer) = ([0], vec![0; 64 << 10]);
    // Long-polls have no answer yet when this is asked first.
    let mut is_first = true;
    while control.read_exact(&mut byte).is_ok() {
        let silent = sockets.iter_mut().filter_map(|socket| socket.read(&mut buffer).err()).count();
        assert!(is_first || silent == 0, "{silent} clients have heard nothing");
        is_first = false;
        control.write_all(&byte).expect("the process that asks listens");
    }
}
