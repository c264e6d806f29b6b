//! Clients of a loop that runs in their own thread.

use std::net::TcpStream;
use thalweg_server::plane::Driver;

/// A client's socket of a loop, which sees it in its next turn. No call on it waits.
///
/// # Panics
/// If the system refuses a socket.
#[must_use]
pub fn connect(driver: &Driver) -> TcpStream {
    let socket = TcpStream::connect(driver.address()).expect("the loop listens");
    socket.set_nodelay(true).expect("a socket of TCP");
    socket.set_nonblocking(true).expect("a socket");
    socket
}
