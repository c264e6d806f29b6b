//! Which crate may import which: the picture in the architecture page, as a table.

use super::{Finding, Sources};
use crate::workspace::Package;

/// Each crate with all crates of ours that it may import. What is not here may import nothing.
const ARROWS: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("env", &["model"]),
    ("log", &["model", "env"]),
    ("engine", &["model", "env", "log"]),
    ("stream", &["model"]),
    ("protocol", &["model", "stream"]),
    ("http2", &["model", "protocol"]),
    ("tier", &["model", "env", "log"]),
    ("cluster", &["model", "log", "stream"]),
    ("node", &["model", "env", "log", "stream", "tier", "cluster"]),
    ("access", &["model"]),
    ("session", &["model", "env", "log", "stream", "node", "protocol", "http2", "access"]),
    ("server", &["model", "env", "log", "stream", "tier", "cluster", "node", "session", "access"]),
    ("client", &["model", "stream", "protocol"]),
    ("cli", &["model", "stream", "protocol", "client"]),
];

/// Crates that may import anything and that nothing imports.
pub(super) const TOOLS: &[&str] = &["sim", "fuzz", "xtask", "bench", "crash", "counts"];

/// Crates that may open sockets and run an async runtime.
pub(super) const NETWORKED: &[&str] = &["server", "client", "cli"];

/// What a crate below the server may name all the same: the library's frames, and the traits of its transport, which
/// need no runtime.
const EXCEPTIONS: &[(&str, &[&str])] = &[("http2", &["h2", "tokio"])];

/// Crates of the field that are sockets, HTTP or an async runtime.
const NETWORK: &[&str] = &[
    "tokio",
    "mio",
    "hyper",
    "hyper-util",
    "axum",
    "socket2",
    "polling",
    "tower",
    "h2",
    "quinn",
    "reqwest",
    "ureq",
    "rustls",
    "tokio-rustls",
    "async-std",
    "smol",
];

pub(super) fn check(sources: &Sources) -> Vec<Finding> {
    let of = |package| check_package(package, &sources.packages);
    sources.packages.iter().flat_map(of).collect()
}

fn check_package(package: &Package, all: &[Package]) -> Vec<Finding> {
    let name = package.directory.as_str();
    let manifest = package.manifest.display().to_string();
    if TOOLS.contains(&name) {
        return Vec::new();
    }
    let Some((_, allowed)) = ARROWS.iter().find(|(from, _)| *from == name) else {
        let advice = "add what it may import to ARROWS in xtask/src/tidy/arrows.rs, and to the \
                      picture in the architecture page";
        return vec![Finding::new(&manifest, 0, format!("crate `{name}` has no arrows"), advice)];
    };
    let finding = |dependency: &str, advice: &str| {
        Finding::new(&manifest, 0, format!("`{name}` must not import `{dependency}`"), advice)
    };
    let mut findings = Vec::new();
    for dependency in &package.dependencies {
        // A crate's tests may import the crate itself, with a feature that only they have.
        let ours = all
            .iter()
            .find(|other| other.name == *dependency && other.directory != package.directory);
        if let Some(other) = ours.filter(|other| !allowed.contains(&other.directory.as_str())) {
            let advice = "arrows are one way: move what you need to a crate that both may import, \
                          or pass it as an argument";
            findings.push(finding(&other.directory, advice));
        }
        let dependency = dependency.as_str();
        let is_exception =
            EXCEPTIONS.iter().any(|(from, may)| *from == name && may.contains(&dependency));
        let is_alone = dependency == "h2" && name != "http2";
        let may_network = NETWORKED.contains(&name) && !is_alone;
        if NETWORK.contains(&dependency) && !may_network && !is_exception {
            let advice = "sockets and async runtimes live in server and client; a core is driven \
                          by `handle_*` and `poll_*`";
            findings.push(finding(dependency, advice));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(directory: &str, dependencies: &[&str]) -> Package {
        Package {
            name: format!("thalweg-{directory}"),
            directory: directory.to_owned(),
            manifest: format!("crates/{directory}/Cargo.toml").into(),
            dependencies: dependencies.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    fn of(directory: &str, dependencies: &[&str]) -> Vec<Finding> {
        let others =
            ["model", "env", "log", "stream", "protocol", "node", "session", "server", "sim"];
        let others: Vec<Package> = others.iter().map(|name| package(name, &[])).collect();
        check_package(&package(directory, dependencies), &others)
    }

    #[test]
    fn arrows_that_point_up_are_refused() {
        for (from, to) in [
            ("model", "env"),
            ("env", "stream"),
            ("log", "stream"),
            ("log", "protocol"),
            ("stream", "log"),
            ("protocol", "log"),
            ("protocol", "env"),
            ("protocol", "node"),
            ("node", "protocol"),
            ("node", "server"),
            ("node", "session"),
            ("session", "server"),
            ("server", "protocol"),
            ("server", "sim"),
        ] {
            let found = of(from, &[&format!("thalweg-{to}")]);
            assert_eq!(found.len(), 1, "{from} -> {to}");
            assert_eq!(found[0].what, format!("`{from}` must not import `{to}`"));
        }
    }

    #[test]
    fn a_runtime_below_the_server_is_refused() {
        assert_eq!(of("node", &["tokio"])[0].what, "`node` must not import `tokio`");
        assert_eq!(of("server", &["tokio", "thalweg-node", "thalweg-session"]), []);
        assert_eq!(of("http2", &["tokio", "h2", "thalweg-protocol"]), []);
        assert_eq!(of("http2", &["mio"])[0].what, "`http2` must not import `mio`");
        assert_eq!(of("session", &["h2"])[0].what, "`session` must not import `h2`");
    }

    #[test]
    fn tools_import_anything() {
        assert_eq!(of("sim", &["tokio", "thalweg-server"]), []);
    }

    #[test]
    fn a_new_crate_needs_its_arrows() {
        assert_eq!(of("extra", &[])[0].what, "crate `extra` has no arrows");
    }
}
