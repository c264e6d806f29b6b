//! The sockets that the shards listen on: one each, for one address, which nobody else may have.
//!
//! Sockets that share an address (`SO_REUSEPORT`) also share it with any process of the same user that asks
//! for it. A second server would silently take half of the first one's connections. So the first socket
//! listens before it may share, and a second server's first socket is refused.

use mio::net::TcpListener;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::SocketAddr;

/// Connections that the kernel may hold ready while a loop is busy.
const BACKLOG: i32 = 1024;

/// Bytes that the kernel may hold for a connection without having sent them. Without this limit it takes
/// megabytes for each reader that stalls, and all clients pay for the copies. A reader that keeps up is
/// refilled long before half of this is gone.
const UNSENT_BYTES_MAX: u32 = 256 << 10;

/// Whether the address can be had, as it looks now.
///
/// # Errors
/// As the system answers.
pub(super) fn check(address: SocketAddr) -> io::Result<()> {
    bound(address, Sharing::No).map(drop)
}

/// `count` listeners, at least one. Port 0 is chosen by the first; the others share it.
///
/// # Errors
/// As the system answers: the address may be taken.
pub(super) fn all(address: SocketAddr, count: usize) -> io::Result<Vec<TcpListener>> {
    let first = bound(address, Sharing::No)?;
    first.listen(BACKLOG)?;
    let mut sockets = vec![first];
    if count > 1 {
        sockets[0].set_reuse_port(true)?;
        let address = sockets[0].local_addr()?;
        let address = address.as_socket().ok_or(io::ErrorKind::InvalidInput)?;
        for _ in 1..count {
            let socket = bound(address, Sharing::Yes)?;
            socket.listen(BACKLOG)?;
            sockets.push(socket);
        }
    }
    Ok(sockets.into_iter().map(|socket| TcpListener::from_std(socket.into())).collect())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sharing {
    Yes,
    No,
}

fn bound(address: SocketAddr, sharing: Sharing) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(sharing == Sharing::Yes)?;
    socket.set_nonblocking(true)?;
    // Connections inherit it.
    socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

    #[test]
    fn an_address_that_others_listen_on_is_refused_however_many_they_are() {
        for count in [1, 2, 3] {
            let listeners = all(ANY, count).unwrap();
            let address = listeners[0].local_addr().unwrap();
            for mine in [1, 2] {
                let error = all(address, mine).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::AddrInUse, "{mine} beside {count}");
            }
            assert_eq!(check(address).unwrap_err().kind(), io::ErrorKind::AddrInUse);
            drop(listeners);
            check(address).unwrap();
        }
    }

    #[test]
    fn every_listener_gets_its_part_of_the_connections() {
        let listeners = all(ANY, 3).unwrap();
        let address = listeners[0].local_addr().unwrap();
        let clients: Vec<_> = (0..96).map(|_| TcpStream::connect(address).unwrap()).collect();
        let taken = |listener: &TcpListener| std::iter::from_fn(|| listener.accept().ok()).count();
        let taken: Vec<usize> = listeners.iter().map(taken).collect();
        assert_eq!(taken.iter().sum::<usize>(), clients.len());
        assert!(taken.iter().all(|count| *count > 0), "{taken:?}");
    }
}
