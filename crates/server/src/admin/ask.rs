//! Asks the admin port of a node: the other end of this module, for commands.
//!
//! One connection for each call, and no longer than [`ANSWER_SECONDS_MAX`].

use axum::body::{Body, to_bytes};
use axum::http::{Method, Request, StatusCode, Uri, header};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::fmt;
use std::io;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};

/// How long an answer may take. A node waits up to 5 s for a leader.
const ANSWER_SECONDS_MAX: u64 = 15;

/// Bytes of an answer: that of a cluster of a thousand nodes is smaller.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// Where the admin port is if nobody says so.
const PORT: u16 = 4440;

/// Why there is no answer to a call, in words that say what to do.
#[derive(Debug)]
pub enum AskError {
    /// The address makes no sense.
    Url {
        /// It.
        url: String,
    },
    /// There is no connection, or it broke.
    NotReached {
        /// Where.
        url: String,
        /// What the system said.
        error: io::Error,
    },
    /// The node says no.
    Refused {
        /// Why, in its words.
        why: String,
    },
    /// The answer is none that this program knows.
    Unknown {
        /// Where.
        url: String,
        /// What makes no sense.
        what: String,
    },
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url { url } => write!(
                f,
                "--admin {url} is no address of an admin port: give it as http://HOST:PORT (admin ports speak plain HTTP)"
            ),
            Self::NotReached { url, error } => write!(
                f,
                "cannot ask {url}: {error}\n  is the node running, and is this its admin_listen? --admin URL names another one"
            ),
            Self::Refused { why } => f.write_str(why),
            Self::Unknown { url, what } => {
                write!(f, "{url} answers what this program does not understand: {what}")
            }
        }
    }
}

impl std::error::Error for AskError {}

/// An admin port.
#[derive(Debug)]
pub(crate) struct AdminPort {
    url: String,
    host: String,
    port: u16,
    runtime: Runtime,
}

impl AdminPort {
    /// The one at `url`. It is not asked yet.
    ///
    /// # Errors
    /// [`AskError::Url`], or what the system says.
    pub(crate) fn at(url: &str) -> Result<Self, AskError> {
        let wrong = || AskError::Url { url: url.to_owned() };
        let uri: Uri = url.strip_suffix('/').unwrap_or(url).parse().map_err(|_| wrong())?;
        let is_plain = uri.scheme_str().is_none_or(|scheme| scheme == "http");
        let is_bare = matches!(uri.path(), "" | "/") && uri.query().is_none();
        let authority = uri.authority().filter(|_| is_plain && is_bare).ok_or_else(wrong)?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = authority.port_u16().unwrap_or(PORT);
        let url = format!("http://{authority}");
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| AskError::NotReached { url: url.clone(), error })?;
        Ok(Self { url, host, port, runtime })
    }

    /// What a path answers.
    ///
    /// # Errors
    /// [`AskError`].
    pub(crate) fn get(&self, path: &str) -> Result<String, AskError> {
        self.call(Request::get(path).body(Body::empty()).expect("a path of ours"))
    }

    /// Calls a path that changes something, with the proof that the caller may.
    ///
    /// # Errors
    /// [`AskError`].
    pub(crate) fn put(
        &self,
        path: &str,
        body: String,
        proof: Option<String>,
    ) -> Result<String, AskError> {
        let mut request = Request::builder().method(Method::PUT).uri(path);
        if let Some(proof) = proof {
            request = request.header(header::AUTHORIZATION, proof);
        }
        self.call(request.body(Body::from(body)).expect("a path of ours"))
    }

    /// Waits.
    pub(crate) fn pause(&self, pause: Duration) {
        self.runtime.block_on(async { tokio::time::sleep(pause).await });
    }

    fn call(&self, mut request: Request<Body>) -> Result<String, AskError> {
        let host = self.url.trim_start_matches("http://");
        let host = host.parse().expect("it is a part of a URI");
        request.headers_mut().insert(header::HOST, host);
        let timeout = Duration::from_secs(ANSWER_SECONDS_MAX);
        let answer = self.runtime.block_on(async {
            let answer = tokio::time::timeout(timeout, self.exchange(request)).await;
            answer.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        });
        let not_reached = |error| AskError::NotReached { url: self.url.clone(), error };
        let (status, body) = answer.map_err(not_reached)?;
        if status.is_success() { Ok(body) } else { Err(self.refusal(status, &body)) }
    }

    async fn exchange(&self, request: Request<Body>) -> io::Result<(StatusCode, String)> {
        let socket = TcpStream::connect((self.host.as_str(), self.port)).await?;
        let opened = http1::handshake(TokioIo::new(socket)).await;
        let (mut sender, connection) = opened.map_err(io::Error::other)?;
        // It ends with the answer, or with the runtime.
        drop(tokio::spawn(connection));
        let answer = sender.send_request(request).await.map_err(io::Error::other)?;
        let status = answer.status();
        let body = to_bytes(Body::new(answer.into_body()), ANSWER_BYTES_MAX).await;
        let body = body.map_err(io::Error::other)?;
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }

    /// What a problem says: its detail and its reasons.
    fn refusal(&self, status: StatusCode, body: &str) -> AskError {
        let problem: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
        match problem["detail"].as_str().or_else(|| problem["title"].as_str()) {
            Some(why) => AskError::Refused { why: why.to_owned() },
            None => AskError::Unknown { url: self.url.clone(), what: status.to_string() },
        }
    }

    /// The node's word is none that this program knows.
    pub(crate) fn unknown(&self, what: impl fmt::Display) -> AskError {
        AskError::Unknown { url: self.url.clone(), what: what.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_host_and_a_port() {
        let of = |url: &str| AdminPort::at(url).map(|it| (it.url, it.host, it.port)).ok();
        let is = |url: &str, host: &str, port| Some((url.to_owned(), host.to_owned(), port));
        assert_eq!(of("http://n1:9"), is("http://n1:9", "n1", 9));
        assert_eq!(of("n1:9"), is("http://n1:9", "n1", 9));
        assert_eq!(of("http://[::1]:9/"), is("http://[::1]:9", "::1", 9));
        assert_eq!(of("http://n1"), is("http://n1", "n1", PORT));
        for wrong in ["https://n1:9", "http://n1:9/cluster", "http://n1:9?a", "", "http://"] {
            assert!(of(wrong).is_none(), "{wrong}");
        }
    }
}
