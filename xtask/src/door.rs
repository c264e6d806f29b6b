//! TLS and HTTP/2 of the release binary, as the public suite and the tools that people have see them.

use crate::conformance::{Way, suite};
use crate::h2spec;
use crate::run::{Counts, Failure};
use crate::server::Server;
use crate::workspace::Workspace;
use std::path::Path;
use std::process::{Command, Stdio};

/// Bytes of an append that takes many records.
const BODY_BYTES: usize = 300_000;

/// Runs the suite over HTTP/2, over TLS, over both, and with a token; and h2spec, curl and openssl where they are installed.
pub(crate) fn run(workspace: &Workspace) -> Result<Counts, Failure> {
    let plain = Server::start(workspace, "door-plain", &[])?;
    let http2 = Way { http2: Some("prior-knowledge"), ..Way::plain("over HTTP/2") };
    let result = suite(workspace, &plain.url(), &http2)
        .and_then(|counts| Ok(counts.and(h2spec::run(workspace, plain.address(), false)?)));
    let plain_counts = result.map_err(|failure| plain.explain(failure))?;
    plain.stop()?;
    let server = Server::start(workspace, "door", &["--tls-self-signed"])?;
    let counts = checks(workspace, &server).map_err(|failure| server.explain(failure))?;
    server.stop()?;
    Ok(plain_counts.and(counts).and(with_token(workspace)?))
}

/// Runs the suite with a token that may do all, where nobody else may do anything.
fn with_token(workspace: &Workspace) -> Result<Counts, Failure> {
    let dir = workspace.scratch("door-access")?;
    let file = dir.join("access.toml");
    let file = file.to_string_lossy();
    let mut command = Command::new(workspace.server_binary());
    command.args(["token", "add", "--access-file", &file, "--id", "all", "--grant", "* **"]);
    let Some(token) = output(&mut command, b"")? else {
        return Err(Failure::new("there is no release binary".to_owned()));
    };
    let plain = Way { token: Some(token.trim()), ..Way::plain("with a token") };
    let server = Server::start(workspace, "door-token", &["--access-file", &file])?;
    let result = suite(workspace, &server.url(), &plain);
    let counts = result.map_err(|failure| server.explain(failure))?;
    server.stop()?;
    let flags = ["--access-file", &file, "--tls-self-signed"];
    let server = Server::start(workspace, "door-token-tls", &flags)?;
    let certificate = server.certificate();
    let url = format!("https://localhost:{}", server.address().port());
    let name = "with a token, over TLS and HTTP/2";
    let both = Way { name, certificate: Some(&certificate), http2: Some("alpn"), ..plain };
    let result = suite(workspace, &url, &both);
    let more = result.map_err(|failure| server.explain(failure))?;
    server.stop()?;
    let _ = std::fs::remove_dir_all(&dir);
    Ok(counts.and(more))
}

fn checks(workspace: &Workspace, server: &Server) -> Result<Counts, Failure> {
    let certificate = server.certificate();
    let url = format!("https://localhost:{}", server.address().port());
    let tls = Way { certificate: Some(&certificate), ..Way::plain("over TLS") };
    let both = Way { name: "over TLS and HTTP/2", http2: Some("alpn"), ..tls };
    let mut counts = suite(workspace, &url, &tls)?;
    counts = counts.and(suite(workspace, &url, &both)?);
    counts = counts.and(h2spec::run(workspace, server.address(), true)?);
    for version in ["1.2", "1.3"] {
        counts = counts.and(curl(&url, &certificate, version)?);
        counts = counts.and(openssl(server, &certificate, version)?);
    }
    Ok(counts)
}

/// An append and a read with one version of TLS.
fn curl(url: &str, certificate: &Path, version: &str) -> Result<Counts, Failure> {
    let stream = format!("{url}/v1/stream/door-{version}");
    let ask = |arguments: &[&str], input: &str| {
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--fail", "--cacert"]).arg(certificate);
        command.args(["--tlsv1.2", "--tls-max", version, &stream]).args(arguments);
        output(&mut command, input.as_bytes())
    };
    let body = "x".repeat(BODY_BYTES);
    let text = ["--header", "Content-Type: text/plain"];
    if ask(&[&["--request", "PUT"], &text[..]].concat(), "")?.is_none() {
        return Ok(Counts::default());
    }
    ask(&[&["--data-binary", "@-"], &text[..]].concat(), &body)?;
    if ask(&[], "")?.is_some_and(|read| read == body) {
        println!("curl, TLS {version}: ok");
        return Ok(Counts::ONE);
    }
    Err(Failure::new(format!("curl with TLS {version} read other bytes than it had appended")))
}

/// A handshake that checks the certificate and offers HTTP/2, too; with TLS 1.2 five more that resume it.
fn openssl(server: &Server, certificate: &Path, version: &str) -> Result<Counts, Failure> {
    let mut command = Command::new("openssl");
    command.args(["s_client", "-connect", &server.address().to_string()]);
    command.args(["-verify_return_error", "-servername", "localhost", "-alpn", "h2,http/1.1"]);
    command.arg("-CAfile").arg(certificate);
    command.args(if version == "1.2" { ["-tls1_2", "-reconnect"] } else { ["-tls1_3", "-brief"] });
    let Some(said) = output(&mut command, b"")? else { return Ok(Counts::default()) };
    let wanted: &[_] = if version == "1.2" {
        &["Verify return code: 0 (ok)", "ALPN protocol: h2", "Reused, TLSv1.2"]
    } else {
        &["Verification: OK", "TLSv1.3"]
    };
    if let Some(missing) = wanted.iter().find(|words| !said.contains(**words)) {
        return Err(Failure::new(format!("openssl did not say `{missing}`:\n{said}")));
    }
    println!("openssl, TLS {version}: ok");
    Ok(Counts::ONE)
}

/// All that a command says, which must succeed; `None` if it is not installed.
fn output(command: &mut Command, input: &[u8]) -> Result<Option<String>, Failure> {
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = |what: &dyn std::fmt::Display| Failure::new(format!("{name}: {what}"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            println!("{name} is not installed: left out");
            return Ok(None);
        }
        child => child.map_err(|error| failed(&error))?,
    };
    let mut stdin = child.stdin.take().expect("it is a pipe");
    std::io::Write::write_all(&mut stdin, input).map_err(|error| failed(&error))?;
    drop(stdin);
    let output = child.wait_with_output().map_err(|error| failed(&error))?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    if output.status.success() { Ok(Some(said)) } else { Err(failed(&said)) }
}
