//! Why a call failed.

use protocol::client::AnswerError;
use protocol::http1::ChunkError;
use std::{fmt, io};

/// Why a call failed.
#[derive(Debug)]
pub enum ClientError {
    /// The server refused: nothing was changed unless the status says otherwise.
    Refused {
        /// The status.
        status: u16,
        /// The body of the answer, which explains it.
        explanation: Box<str>,
        /// When to try again, if the server said so.
        retry_after_seconds: Option<u32>,
    },
    /// The connection broke: whether the request was done is unknown.
    Connection(io::Error),
    /// Nothing came in time: whether the request was done is unknown.
    TimedOut {
        /// The limit.
        limit_ms: u64,
    },
    /// The answer is not HTTP, or longer than this client takes.
    Answer(AnswerError),
    /// The body's chunks are malformed or longer than this client takes.
    Body(ChunkError),
    /// The answer lacks what the protocol promises.
    Incomplete {
        /// What is missing.
        missing: &'static str,
    },
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { status, explanation, .. } => {
                write!(f, "the server answered {status}: {}", explanation.trim())
            }
            Self::Connection(error) => write!(f, "the connection failed: {error}"),
            Self::TimedOut { limit_ms } => write!(f, "no answer within {limit_ms} ms"),
            Self::Answer(error) => write!(f, "{error}"),
            Self::Body(error) => write!(f, "the body of the answer is broken: {error:?}"),
            Self::Incomplete { missing } => write!(f, "the answer has no {missing}"),
        }
    }
}

impl std::error::Error for ClientError {}

impl From<io::Error> for ClientError {
    fn from(error: io::Error) -> Self {
        Self::Connection(error)
    }
}

impl From<AnswerError> for ClientError {
    fn from(error: AnswerError) -> Self {
        Self::Answer(error)
    }
}

impl From<ChunkError> for ClientError {
    fn from(error: ChunkError) -> Self {
        Self::Body(error)
    }
}
