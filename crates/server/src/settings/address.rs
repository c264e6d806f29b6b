//! Addresses with ports, as people write them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// An address as people write it. A port alone is on this machine; a port after a colon is on all interfaces.
pub(super) fn parse_address(text: &str) -> Option<SocketAddr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    if let Ok(port) = text.parse::<u16>() {
        return Some((Ipv4Addr::LOCALHOST, port).into());
    }
    let (host, port) = text.rsplit_once(':')?;
    let ip: IpAddr = match host {
        "" => Ipv4Addr::UNSPECIFIED.into(),
        "localhost" => Ipv4Addr::LOCALHOST.into(),
        _ => return None,
    };
    Some((ip, port.parse().ok()?).into())
}
