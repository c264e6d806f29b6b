//! The access file and who may reach the server without one.
//!
//! # Rules
//! - Without an access file, a server that listens on loopback addresses alone is open to everybody on the machine. Any
//!   other refuses to start, unless the setting `anonymous` says that everybody may do everything.
//! - With an access file, clients that show nothing may do what its `[anonymous]` says and nothing else. That holds on
//!   loopback, too: a proxy on the same machine makes every client a local one.
//!
//! [`load`] is called at the start and at every reload. It gives new rules whole, or every problem.

use crate::settings::{Anonymous, ClientAuth, LetIn, Settings};
use access::{
    Access, AnonymousRule, Grant, Rules,
    file::{self, Secrecy},
};
use env::{FileStamp, Random, RealRandom, read_operator_file};
use session::{Names, Pages, Sharing};
use std::cell::RefCell;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Largest file that is read: an access file, keys or a secret.
pub(crate) const FILE_BYTES_MAX: u64 = 64 << 20;

/// Why there are no rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessProblem {
    /// Others than this machine can reach the server, and nobody has said what they may do.
    Unprotected {
        /// An address that others can reach.
        listen: SocketAddr,
    },
    /// Nobody could do anything.
    Nobody,
    /// The access file is wrong.
    File {
        /// The file.
        path: PathBuf,
        /// Line of the mistake, counted from 1; 0 if it is none of its lines.
        line: usize,
        /// What is wrong, and what to do.
        message: String,
    },
}

impl fmt::Display for AccessProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unprotected { listen } => write!(
                f,
                "others than this machine can reach {listen}, and nobody has said what they may do: name an \
                 access file (setting access_file; `thalweg token add` writes one), or let everybody do \
                 everything (setting anonymous = \"all\")"
            ),
            Self::Nobody => f.write_str(
                "anonymous = \"none\" without an access file lets nobody do anything: name one (setting access_file)",
            ),
            Self::File { path, line: 0, message } => write!(f, "{}: {message}", path.display()),
            Self::File { path, line, message } => write!(f, "{}:{line}: {message}", path.display()),
        }
    }
}

impl std::error::Error for AccessProblem {}

/// What came of reading the rules.
#[derive(Debug)]
pub struct Loaded {
    /// The rules, or every problem there is.
    pub access: Result<Access, Vec<AccessProblem>>,
    /// The files that were read or are missing, as they were just before.
    pub files: Vec<FileStamp>,
}

/// Reads the rules that `settings` name. `previous` are those in force, whose meters continue.
#[must_use]
pub fn load(settings: &Settings, previous: Option<&Access>) -> Loaded {
    let Some(path) = &settings.access_file else {
        let access = without_file(settings, previous).map_err(|problem| vec![problem]);
        return Loaded { access, files: Vec::new() };
    };
    let reader = Reader { files: RefCell::new(vec![FileStamp::of(path)]) };
    let access = reader.rules(path).map(|mut rules| {
        match settings.anonymous {
            Anonymous::Auto => {}
            Anonymous::All => {
                rules.anonymous = AnonymousRule { grants: vec![Grant::ALL], ..rules.anonymous };
            }
            Anonymous::None => rules.anonymous = AnonymousRule::default(),
        }
        Access::new(rules, RealRandom.next_u64(), previous)
    });
    Loaded { access, files: reader.files.into_inner() }
}

fn without_file(settings: &Settings, previous: Option<&Access>) -> Result<Access, AccessProblem> {
    let reachable = addresses(settings).find(|listen| !listen.ip().to_canonical().is_loopback());
    match (settings.anonymous, reachable) {
        (Anonymous::All, _) | (Anonymous::Auto, None) => Ok(Access::open(previous)),
        (Anonymous::Auto, Some(listen)) => Err(AccessProblem::Unprotected { listen }),
        (Anonymous::None, _) => Err(AccessProblem::Nobody),
    }
}

/// Which names the server has, which web pages may change something, and which may see answers. Where everybody on this
/// machine may do everything, a page that a browser shows must not count as everybody.
pub(crate) fn pages(settings: &Settings) -> Pages {
    let is_open = settings.access_file.is_none() || settings.anonymous == Anonymous::All;
    let is_local = addresses(settings).all(|listen| listen.ip().to_canonical().is_loopback());
    let public_host = settings.public_url.iter().map(|url| url.host().into());
    // A browser shows the certificate of its user, whichever page asks.
    let has_certificates = settings.tls_client_auth != ClientAuth::Off;
    let names = |setting: &LetIn, is_guarded: bool| match setting {
        LetIn::Auto if is_guarded => Names::Local(public_host.clone().collect()),
        LetIn::Auto | LetIn::Any => Names::Any,
        LetIn::Listed(names) => {
            Names::Local(names.iter().map(|name| name.as_str().into()).collect())
        }
    };
    let is_guarded = is_open && is_local;
    let sharing = match settings.cors_origins {
        LetIn::Listed(_) => Sharing::Listed { credentials: settings.cors_credentials },
        LetIn::Auto | LetIn::Any => Sharing::All,
    };
    Pages {
        hosts: names(&settings.allowed_hosts, is_guarded),
        origins: names(&settings.cors_origins, is_guarded || has_certificates),
        sharing,
    }
}

/// Where the server listens for streams.
fn addresses(settings: &Settings) -> impl Iterator<Item = SocketAddr> {
    settings.listen.iter().map(|listen| listen.address)
}

/// Reads an access file and what it names, and does nothing with it.
///
/// # Errors
/// Every [`AccessProblem`] there is.
pub fn read_rules(path: &Path) -> Result<Rules, Vec<AccessProblem>> {
    Reader::default().rules(path)
}

/// As [`read_rules`], with the text that the file has or will have.
///
/// # Errors
/// Every [`AccessProblem`] there is.
pub fn read_rules_from(path: &Path, text: &str) -> Result<Rules, Vec<AccessProblem>> {
    Reader::default().rules_from(path, text)
}

/// Reads files, and remembers which.
#[derive(Default)]
struct Reader {
    files: RefCell<Vec<FileStamp>>,
}

impl Reader {
    fn rules(&self, path: &Path) -> Result<Rules, Vec<AccessProblem>> {
        let problem = |message| AccessProblem::File { path: path.to_owned(), line: 0, message };
        // It has hashes of secrets of 256 bits, which others may know.
        let bytes = read(path, Secrecy::Public).map_err(|why| vec![problem(why)])?;
        let text =
            String::from_utf8(bytes).map_err(|_| vec![problem("is not UTF-8".to_owned())])?;
        self.rules_from(path, &text)
    }

    fn rules_from(&self, path: &Path, text: &str) -> Result<Rules, Vec<AccessProblem>> {
        let problem = |line, message| AccessProblem::File { path: path.to_owned(), line, message };
        let beside = |name: &str, secrecy| {
            let path = path.parent().unwrap_or(Path::new(".")).join(name);
            self.files.borrow_mut().push(FileStamp::of(&path));
            read(&path, secrecy)
        };
        let parsed = file::parse(text, &beside);
        parsed.map_err(|found| {
            found
                .into_iter()
                .map(|file::Problem { line, message }| problem(line, message))
                .collect()
        })
    }
}

/// Reads the secret of a signing key; the error is the end of a sentence that begins with the file's name.
///
/// # Errors
/// If it cannot be read, or is none, or others can read it.
pub fn read_secret(path: &Path) -> Result<Vec<u8>, String> {
    read(path, Secrecy::Secret).and_then(|bytes| file::secret(&bytes))
}

/// Reads a file; the error is the end of a sentence that begins with its name.
fn read(path: &Path, secrecy: Secrecy) -> Result<Vec<u8>, String> {
    let file = read_operator_file(path, FILE_BYTES_MAX);
    let file = file.map_err(|error| format!("cannot be read: {error}"))?;
    if secrecy == Secrecy::Secret && file.is_open_to_others() {
        return Err(format!(
            "can be read or changed by others (mode {:04o}); take that away: chmod o= {}",
            file.mode,
            path.display()
        ));
    }
    Ok(file.bytes)
}

/// Logs what is open to whom.
pub fn log(access: &Access, settings: &Settings) {
    let anonymous: Vec<String> = access.anonymous_grants().collect();
    match (&settings.access_file, access.is_open()) {
        (_, true) => {
            tracing::info!(
                "everybody who can reach this server may do everything; `thalweg token add` begins to change that"
            );
        }
        (Some(file), false) => {
            let anonymous =
                if anonymous.is_empty() { "nothing".to_owned() } else { anonymous.join("; ") };
            tracing::info!(file = %file.display(), anonymous, "access is by the grants of a file");
        }
        (None, false) => unreachable!("rules that are not open come from a file"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{self, Environment, Flags};

    fn settings(flags: &[(&'static str, &str)]) -> Settings {
        let values = flags.iter().map(|(key, value)| (*key, (*value).to_owned())).collect();
        let flags = Flags { config: None, values };
        settings::load(&flags, &Environment::default(), &|_| unreachable!()).unwrap().settings
    }

    fn problems(flags: &[(&'static str, &str)]) -> Vec<String> {
        let problems = load(&settings(flags), None).access.unwrap_err();
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn foreign_pages_are_kept_out_where_everybody_is_let_in() {
        let is_guarded = |flags| !pages(&settings(flags)).is_open();
        assert!(is_guarded(&[]) && is_guarded(&[("listen", "[::1]:1,127.0.0.1:2")]));
        assert!(!is_guarded(&[("listen", "127.0.0.1:1,0.0.0.0:2"), ("anonymous", "all")]));
        assert!(!is_guarded(&[("access_file", "a")]));
        assert!(is_guarded(&[("access_file", "a"), ("anonymous", "all")]));
        assert!(!is_guarded(&[("allowed_hosts", "*"), ("cors_origins", "*")]));
        let listed = pages(&settings(&[("access_file", "a"), ("allowed_hosts", "a.example")]));
        assert_eq!(listed.hosts, Names::Local(["a.example".into()].into()));
        assert_eq!((listed.origins, listed.sharing), (Names::Any, Sharing::All));
        let client = [("tls_client_auth", "optional"), ("tls_client_ca", "ca")];
        let with_certificates = [&client[..], &[("access_file", "a")]].concat();
        let guarded = pages(&settings(&with_certificates));
        assert_eq!((guarded.hosts, guarded.origins), (Names::Any, Names::Local([].into())));
        let open = pages(&settings(&[&with_certificates[..], &[("cors_origins", "*")]].concat()));
        assert!(open.is_open(), "who asks for it gets it");
        let origins = ("cors_origins", "https://a.example");
        for (value, credentials) in [("off", false), ("on", true)] {
            let listed = pages(&settings(&[origins, ("cors_credentials", value)]));
            assert_eq!(listed.sharing, Sharing::Listed { credentials });
        }
    }

    #[test]
    fn loopback_is_open_and_anything_else_is_refused_with_both_ways_out() {
        for listen in ["127.0.0.1:1", "[::1]:1", "127.9.9.9:1", "[::ffff:127.0.0.1]:1"] {
            assert!(
                load(&settings(&[("listen", listen)]), None).access.unwrap().is_open(),
                "{listen}"
            );
        }
        for listen in ["0.0.0.0:1", "[::]:1", "192.0.2.1:1", "10.0.0.1:1"] {
            let [problem] = &problems(&[("listen", listen)])[..] else { panic!() };
            assert!(
                problem.contains("access_file") && problem.contains("anonymous = \"all\""),
                "{problem}"
            );
            let all = settings(&[("listen", listen), ("anonymous", "all")]);
            assert!(load(&all, None).access.unwrap().is_open());
        }
        assert!(problems(&[("anonymous", "none")])[0].contains("access_file"));
    }
}
