//! Kinds of settings that say who reaches the server, and how.

use super::address::parse_address;
use super::kind::{Kind, quoted};
use std::fmt;
use std::net::SocketAddr;

/// Addresses that one server may listen on.
const LISTENS_MAX: usize = 8;

/// An address to listen on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listen {
    /// Whether TLS is spoken there; `None` leaves it to whether there is a certificate.
    pub tls: Option<bool>,
    /// The address.
    pub address: SocketAddr,
}

/// One to eight addresses, separated by commas.
pub(super) struct Listens;

impl Listens {
    pub(super) const fn placeholder(&self) -> &'static str {
        "ADDRESS,…"
    }
}

impl Kind for Listens {
    type Value = Vec<Listen>;

    fn parse(&self, text: &str) -> Option<Vec<Listen>> {
        let listens: Option<Vec<Listen>> =
            text.split(',').map(|one| parse_listen(one.trim())).collect();
        let listens = listens?;
        let is_once = |at: usize| {
            let address = listens[at].address;
            address.port() == 0 || listens[..at].iter().all(|other| other.address != address)
        };
        let is_valid = listens.len() <= LISTENS_MAX && (0..listens.len()).all(is_once);
        is_valid.then_some(listens)
    }

    fn to_toml(&self, value: &Vec<Listen>) -> String {
        let all: Vec<String> = value.iter().map(Listen::to_string).collect();
        quoted(&all.join(","))
    }

    fn allowed(&self) -> String {
        format!(
            "one to {LISTENS_MAX} different addresses with ports, such as `127.0.0.1:4437`, `[::]:4437`, \
             `localhost:4437`, `:4437` (all interfaces) or `4437` (this machine), each perhaps after `http://` \
             or `https://`"
        )
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.tls {
            None => write!(f, "{}", self.address),
            Some(false) => write!(f, "http://{}", self.address),
            Some(true) => write!(f, "https://{}", self.address),
        }
    }
}

fn parse_listen(text: &str) -> Option<Listen> {
    let (tls, rest) = match text.split_once("://") {
        Some(("http", rest)) => (Some(false), rest),
        Some(("https", rest)) => (Some(true), rest),
        Some(_) => return None,
        None => (None, text),
    };
    Some(Listen { tls, address: parse_address(rest)? })
}

/// The oldest version of TLS that is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsVersion {
    /// TLS 1.2
    Tls12,
    /// TLS 1.3
    Tls13,
}

impl TlsVersion {
    pub(super) const NAMES: [(&'static str, Self); 2] =
        [("1.2", Self::Tls12), ("1.3", Self::Tls13)];
}

/// Whether clients are asked for certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientAuth {
    /// They are not.
    Off,
    /// They are, and may have none.
    Optional,
    /// A client without one gets no connection.
    Required,
}

impl ClientAuth {
    pub(super) const NAMES: [(&'static str, Self); 3] =
        [("off", Self::Off), ("optional", Self::Optional), ("required", Self::Required)];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_as_people_write_them() {
        let one = |text: &str| Listens.parse(text).map(|all| all[0].to_string());
        assert_eq!(one("4437").as_deref(), Some("127.0.0.1:4437"));
        assert_eq!(one(":4437").as_deref(), Some("0.0.0.0:4437"));
        assert_eq!(one("localhost:4437").as_deref(), Some("127.0.0.1:4437"));
        assert_eq!(one("https://[::]:443").as_deref(), Some("https://[::]:443"));
        for wrong in ["", "host:1", "ftp://127.0.0.1:1", "127.0.0.1", "1.2.3.4:99999", "1,1"] {
            assert_eq!(one(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn several_addresses_come_back_as_they_were_given() {
        let text = "http://127.0.0.1:1,https://127.0.0.1:2,127.0.0.1:3";
        let listens = Listens.parse(text).unwrap();
        assert_eq!(Listens.to_toml(&listens), format!("\"{text}\""));
        assert_eq!(Listens.parse("0,0").map(|all| all.len()), Some(2), "two free ports");
        assert_eq!(Listens.parse("1,2,3,4,5,6,7,8,9"), None);
    }
}
