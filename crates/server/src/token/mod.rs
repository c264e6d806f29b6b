//! `thalweg token`: makes and removes tokens in the access file, checks it, and signs URLs.
//!
//! # Invariants
//! - Standard output has the result and nothing else: a new token, a signed query, the list.
//! - A secret is printed once, by `add`. The file keeps its hash.
//! - A file is changed whole: written beside the old one, synced, renamed. Its comments, its order and its mode stay.
//! - A change that the server would not take is not written.

mod edit;
mod error;
mod span;

pub use error::TokenError;
pub use span::LifeSpan;

use crate::access::read_rules;
use access::{Grant, Secret, StaticToken, is_id, sign};
use clap::{Args, Subcommand};
use edit::AccessFile;
use env::{Clock, Random, RealClock, RealRandom};
use std::path::{Path, PathBuf};

const HELP: &str = "\
Try it:
  thalweg token add --access-file access.toml --id ci --grant 'read,append logs/' > ci.token
  thalweg serve --access-file access.toml
  curl http://127.0.0.1:4437/v1/stream/logs/1 -H \"Authorization: Bearer $(cat ci.token)\"

A grant is operations, one blank, and a path:
  read,append logs/     everything under logs/
  read chat/42          one stream
  write,read **         everything; `write` is append and create, `*` all operations
Operations: read, list, append, create, delete, subscribe.

A server that runs takes the changed file within seconds.";

/// What follows `thalweg token`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a token: its secret is printed once, alone, and the file keeps its hash
    #[command(after_help = HELP)]
    Add {
        /// The access file
        #[command(flatten)]
        file: FileArgument,
        /// Names the token, in logs too: letters, digits, `-` and `.`
        #[arg(long, value_name = "NAME")]
        id: String,
        /// What it may do, as in 'read,append logs/'; may be given several times
        #[arg(long = "grant", value_name = "GRANT", required = true)]
        grants: Vec<String>,
        /// How long it lasts, as in 90d, 12h or 30m; without this it does not end
        #[arg(long = "for", value_name = "TIME")]
        lasts: Option<LifeSpan>,
    },
    /// List tokens, one a line: id, end, grants
    Ls {
        /// The access file
        #[command(flatten)]
        file: FileArgument,
    },
    /// Remove tokens; a server that runs refuses them within seconds, and ends their live readers
    Rm {
        /// The access file
        #[command(flatten)]
        file: FileArgument,
        /// The tokens
        #[arg(required = true, value_name = "NAME")]
        ids: Vec<String>,
    },
    /// Check the access file as a server would; with --token-file say what that token may do
    Check {
        /// The access file
        #[command(flatten)]
        file: FileArgument,
        /// File with a token of this access file
        #[arg(long, value_name = "FILE")]
        token_file: Option<PathBuf>,
    },
    /// Sign a URL that a browser's EventSource can read; prints its path and query
    Sign {
        /// The stream, as in chat/42, or everything under a path, as in chat/
        path: String,
        /// File with the secret of the signing key
        #[arg(long, value_name = "FILE")]
        key_file: PathBuf,
        /// The id of the signing key in the access file
        #[arg(long, value_name = "NAME")]
        key: String,
        /// How long it lasts, as in 10m
        #[arg(long = "for", value_name = "TIME", default_value = "10m")]
        lasts: LifeSpan,
    },
}

/// The access file.
#[derive(Debug, Args)]
pub struct FileArgument {
    /// The access file; `add` makes it if it is missing
    #[arg(long, value_name = "FILE", env = "THALWEG_ACCESS_FILE")]
    access_file: PathBuf,
}

/// Carries a command out; gives back what to print on standard output.
///
/// # Errors
/// [`TokenError`]; nothing was changed then.
pub fn run(command: &Command) -> Result<String, TokenError> {
    match command {
        Command::Add { file, id, grants, lasts } => add(&file.access_file, id, grants, *lasts),
        Command::Ls { file } => list(&file.access_file),
        Command::Rm { file, ids } => remove(&file.access_file, ids),
        Command::Check { file, token_file } => check(&file.access_file, token_file.as_deref()),
        Command::Sign { path, key_file, key, lasts } => sign_url(path, key_file, key, *lasts),
    }
}

fn add(
    path: &Path,
    id: &str,
    grants: &[String],
    lasts: Option<LifeSpan>,
) -> Result<String, TokenError> {
    if !is_id(id) {
        return Err(TokenError::Argument(format!(
            "`{id}` cannot name a token: take 1 to 64 letters, digits, `-` and `.`"
        )));
    }
    for grant in grants {
        Grant::parse(grant).map_err(|error| TokenError::Argument(format!("`{grant}`: {error}")))?;
    }
    let mut file = AccessFile::open_or_begin(path)?;
    if file.has_token(id) {
        return Err(TokenError::Argument(format!(
            "{} has a token `{id}` already: take another name, or remove it first",
            path.display()
        )));
    }
    let mut random = [0; 32];
    for chunk in random.as_chunks_mut::<8>().0 {
        *chunk = RealRandom.next_u64().to_le_bytes();
    }
    let secret = Secret::new(random);
    let expires = lasts.map(|lasts| lasts.after(RealClock::new().now_wall()));
    file.add_token(id, &secret.hash().render(), grants, expires.as_deref());
    file.save()?;
    Ok(StaticToken { id, secret }.render() + "\n")
}

fn list(path: &Path) -> Result<String, TokenError> {
    read_rules(path).map_err(TokenError::File)?;
    Ok(AccessFile::open(path)?.token_lines())
}

fn remove(path: &Path, ids: &[String]) -> Result<String, TokenError> {
    let mut file = AccessFile::open(path)?;
    if let Some(unknown) = ids.iter().find(|id| !file.has_token(id)) {
        return Err(TokenError::Argument(format!("{} has no token `{unknown}`", path.display())));
    }
    ids.iter().for_each(|id| file.remove_token(id));
    file.save()?;
    Ok(String::new())
}

fn check(path: &Path, token_file: Option<&Path>) -> Result<String, TokenError> {
    let rules = read_rules(path).map_err(TokenError::File)?;
    let Some(token_file) = token_file else { return Ok(format!("{rules}\n")) };
    let text = edit::read(token_file)?;
    let access = access::Access::new(rules, 0, None);
    let who = access.explain(text.trim(), RealClock::new().now_wall());
    who.map(|who| who + "\n")
        .map_err(|why| TokenError::Argument(format!("{}: {why}", token_file.display())))
}

fn sign_url(path: &str, key_file: &Path, key: &str, lasts: LifeSpan) -> Result<String, TokenError> {
    if path.starts_with('/') {
        let inner = path.strip_prefix("/v1/stream/").unwrap_or(path);
        let shown = inner.trim_start_matches('/');
        let advice = format!("a path does not begin with a slash; write `{shown}`, not `{path}`");
        return Err(TokenError::Argument(advice));
    }
    let is_prefix = path.ends_with('/');
    model::StreamPath::new(path).map_err(|_| {
        TokenError::Argument(format!("`{path}` is not a path that a stream may have"))
    })?;
    let secret = crate::access::read_secret(key_file)
        .map_err(|why| TokenError::Argument(format!("{} {why}", key_file.display())))?;
    let expires_s = lasts.end_s(RealClock::new().now_wall());
    let signature = sign(&secret, path, expires_s);
    let target =
        if is_prefix { format!("prefix={}&", edit::percent_encoded(path)) } else { String::new() };
    let shown = edit::percent_encoded(path);
    Ok(format!("/v1/stream/{shown}?{target}expires={expires_s}&key={key}&signature={signature}\n"))
}
