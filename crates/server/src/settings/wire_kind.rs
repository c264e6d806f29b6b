//! Kinds of settings that say who reaches the server, and how.

use super::address::parse_address;
use super::kind::{Kind, quoted};
use ipnet::IpNet;
use session::PublicUrl;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

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

/// Longest name and port that other nodes may be given.
const NAME_BYTES_MAX: usize = 300;

/// A name or an address, with a port, by which others reach this machine; or `none`.
pub(super) struct OptionalName;

impl OptionalName {
    pub(super) const fn placeholder(&self) -> &'static str {
        "NAME:PORT"
    }
}

impl Kind for OptionalName {
    type Value = Option<String>;

    fn parse(&self, text: &str) -> Option<Option<String>> {
        if text == "none" {
            return Some(None);
        }
        let (name, port) = text.rsplit_once(':')?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
        let is_name = !name.is_empty() && name.chars().all(is_plain);
        // An address of version 6 is in brackets, so that its port can be told apart.
        let is_whole = !name.contains(':') || (name.starts_with('[') && name.ends_with(']'));
        let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
        let is_valid = is_name && is_whole && is_port && text.len() <= NAME_BYTES_MAX;
        is_valid.then(|| Some(text.to_owned()))
    }

    fn to_toml(&self, value: &Option<String>) -> String {
        quoted(value.as_deref().unwrap_or("none"))
    }

    fn allowed(&self) -> String {
        "`none`, or a name or an address with a port, such as `n1.example:4439`, `10.0.0.1:4439` or `[::1]:4439`".to_owned()
    }
}

/// A text that stands for a secret: nothing shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Hidden(String);

impl Hidden {
    /// The text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// The token of a cluster, or `none`. Whether it is one is found out where it is used: a refusal here would show it.
pub(super) struct OptionalToken;

impl OptionalToken {
    pub(super) const fn placeholder(&self) -> &'static str {
        "TOKEN"
    }
}

impl Kind for OptionalToken {
    type Value = Option<Hidden>;

    fn parse(&self, text: &str) -> Option<Option<Hidden>> {
        Some((text != "none").then(|| Hidden(text.to_owned())))
    }

    fn to_toml(&self, _: &Option<Hidden>) -> String {
        quoted("none")
    }

    fn allowed(&self) -> String {
        "`none`, or what `thalweg cluster token` prints".to_owned()
    }
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

/// Names that are let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LetIn {
    /// As safe as possible for what is open to whom.
    Auto,
    /// All.
    Any,
    /// Those of this machine, and these.
    Listed(Vec<String>),
}

/// Names, separated by commas, or a word for some.
pub(super) struct LetInNames {
    /// A name as an example.
    pub(super) example: &'static str,
    /// Whether a name begins with a scheme.
    pub(super) has_scheme: bool,
}

impl LetInNames {
    pub(super) const fn placeholder(&self) -> &'static str {
        "NAME,…"
    }

    /// Whether it is a name: without a path, and for a host without a port.
    fn takes(&self, name: &str) -> bool {
        let host = match (name.split_once("://"), self.has_scheme) {
            (Some(("http" | "https", host)), true) => host,
            (None, false) => name,
            _ => return false,
        };
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._[]".contains(c);
        let is_host =
            |c: char| is_plain(c) || (c == ':' && (self.has_scheme || host.starts_with('[')));
        !host.is_empty() && host.chars().all(is_host)
    }
}

impl Kind for LetInNames {
    type Value = LetIn;

    fn parse(&self, text: &str) -> Option<LetIn> {
        match text {
            "auto" => Some(LetIn::Auto),
            "*" => Some(LetIn::Any),
            _ => {
                let names: Vec<String> =
                    text.split(',').map(|name| name.trim().to_ascii_lowercase()).collect();
                names.iter().all(|name| self.takes(name)).then_some(LetIn::Listed(names))
            }
        }
    }

    fn to_toml(&self, value: &LetIn) -> String {
        match value {
            LetIn::Auto => quoted("auto"),
            LetIn::Any => quoted("*"),
            LetIn::Listed(names) => quoted(&names.join(",")),
        }
    }

    fn allowed(&self) -> String {
        format!("`auto`, `*`, or names separated by commas, such as `{}`", self.example)
    }
}

/// The URL under which clients know the server, or `none`.
pub(super) struct OptionalUrl;

impl OptionalUrl {
    pub(super) const fn placeholder(&self) -> &'static str {
        "URL"
    }
}

impl Kind for OptionalUrl {
    type Value = Option<PublicUrl>;

    fn parse(&self, text: &str) -> Option<Option<PublicUrl>> {
        if text == "none" { Some(None) } else { text.parse().ok().map(Some) }
    }

    fn to_toml(&self, value: &Option<PublicUrl>) -> String {
        value.as_ref().map_or_else(|| quoted("none"), |url| quoted(&url.to_string()))
    }

    fn allowed(&self) -> String {
        "`none`, or `http://` or `https://` with a host and perhaps a path, such as \
         `https://example.com/streams`"
            .to_owned()
    }
}

/// Networks, separated by commas, or `none`.
pub(super) struct Networks;

impl Networks {
    pub(super) const fn placeholder(&self) -> &'static str {
        "NETWORK,…"
    }
}

impl Kind for Networks {
    type Value = Vec<IpNet>;

    fn parse(&self, text: &str) -> Option<Vec<IpNet>> {
        if text == "none" {
            return Some(Vec::new());
        }
        let one = |text: &str| {
            let address = || text.parse::<IpAddr>().map(IpNet::from);
            text.parse::<IpNet>().or_else(|_| address()).ok().map(|network| network.trunc())
        };
        text.split(',').map(|text| one(text.trim())).collect()
    }

    fn to_toml(&self, value: &Vec<IpNet>) -> String {
        let all: Vec<String> = value.iter().map(IpNet::to_string).collect();
        if all.is_empty() { quoted("none") } else { quoted(&all.join(",")) }
    }

    fn allowed(&self) -> String {
        "`none`, or addresses and networks separated by commas, such as `127.0.0.1,10.0.0.0/8,fd00::/8`"
            .to_owned()
    }
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
    fn names_of_hosts_and_origins_are_told_apart() {
        let hosts = LetInNames { example: "", has_scheme: false };
        let origins = LetInNames { example: "", has_scheme: true };
        let listed = |names: &[&str]| {
            Some(LetIn::Listed(names.iter().map(|name| (*name).to_owned()).collect()))
        };
        assert_eq!(hosts.parse("A.example, [::1]"), listed(&["a.example", "[::1]"]));
        let two = "https://a.example,http://b.example:8080";
        assert_eq!(origins.to_toml(&origins.parse(two).unwrap()), format!("\"{two}\""));
        assert_eq!((hosts.parse("auto"), hosts.parse("*")), (Some(LetIn::Auto), Some(LetIn::Any)));
        for wrong in ["", "a,", "a.example:80", "https://a.example", "a/b", "a b", "*.example"] {
            assert_eq!(hosts.parse(wrong), None, "{wrong}");
        }
        for wrong in ["", "a.example", "ftp://a", "https://", "https://a/", "null", "https://a,"] {
            assert_eq!(origins.parse(wrong), None, "{wrong}");
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

    #[test]
    fn proxies_are_addresses_and_networks() {
        let parse = |text: &str| Networks.parse(text).map(|all| Networks.to_toml(&all));
        assert_eq!(parse("none").as_deref(), Some("\"none\""));
        assert_eq!(
            parse("127.0.0.1, 10.1.2.3/8,fd00::/8").as_deref(),
            Some("\"127.0.0.1/32,10.0.0.0/8,fd00::/8\"")
        );
        for wrong in ["", "10.0.0.0/33", "example.com", "127.0.0.1,"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        let url = |text: &str| OptionalUrl.parse(text).map(|url| OptionalUrl.to_toml(&url));
        assert_eq!(url("none").as_deref(), Some("\"none\""));
        assert_eq!(url("https://a.example/s/").as_deref(), Some("\"https://a.example/s\""));
        assert_eq!(url("a.example"), None);
    }
}
