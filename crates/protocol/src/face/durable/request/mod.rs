//! Requests: what a head asks of a stream, checked and owned.
//!
//! # Driving it
//! [`parse`] when the head is there. For [`Request::Create`] and [`Request::Append`] take the body
//! and call [`CreateRequest::finish`] or [`AppendRequest::finish`], which apply the rules that need
//! it. A request borrows nothing, so the receive buffer is free for the body.
//!
//! # What is checked here
//! Everything that can be decided without a stream. What depends on one comes back from the node
//! as `stream::Refusal`.

mod append;
mod condition;
mod create;
mod fields;
mod page;
mod preflight;
mod read;
mod settings;
mod shown;
mod site;

pub use append::{AppendRequest, ReadyAppend};
pub use create::{CreateRequest, ReadyCreate};
pub(crate) use fields::MOUNT;
use fields::{Fields, refuse_precondition, stream_path};
use model::{ReadFrom, TrimBefore};
pub use page::{Names, Page, Pages, Sender, Sharing};
pub use read::{Live, ReadRequest};
pub(crate) use shown::ASKED_BYTES_MAX;
pub use shown::{Asked, Proof, Shown, SignedQuery};
pub use site::{PublicUrl, Site, Way};

use crate::{
    face::durable::problem::{Code, Problem, detail::quote},
    field,
    head::{Method, RequestHead},
};
use model::StreamPath;
use stream::ContentType;

/// What a client asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// `PUT`: create a stream or make sure that it exists. PROTOCOL §5.1.
    Create(CreateRequest),
    /// `POST`: append, close, or both. PROTOCOL §5.2.
    Append(AppendRequest),
    /// `GET`: read, perhaps live. PROTOCOL §5.6–5.8.
    Read(ReadRequest),
    /// `HEAD`: the stream's configuration and its tail. PROTOCOL §5.5.
    Head(StreamPath),
    /// `HEAD` with a record or a time: where a read of it would begin.
    Resolve {
        /// The stream.
        path: StreamPath,
        /// The record, or the time.
        from: ReadFrom,
        /// A record behind the tail means the tail.
        clamp: bool,
    },
    /// `PATCH`: change what is kept of a stream.
    Change {
        /// The stream.
        path: StreamPath,
        /// What changes.
        change: stream::Change,
    },
    /// `PATCH`: drop the beginning of a stream.
    Trim {
        /// The stream.
        path: StreamPath,
        /// What it keeps.
        before: TrimBefore,
    },
    /// `DELETE`. PROTOCOL §5.4.
    Delete(StreamPath),
    /// `OPTIONS`: a browser asks what it may send.
    Preflight {
        /// Fields that a page wants to send besides those that every page may.
        fields: Option<Box<str>>,
    },
}

impl Request {
    /// Whether it may change a stream.
    #[must_use]
    pub fn is_write(&self) -> bool {
        match self {
            Self::Create(_) | Self::Append(_) | Self::Delete(_) => true,
            Self::Change { .. } | Self::Trim { .. } => true,
            Self::Read(_) | Self::Head(_) | Self::Resolve { .. } => false,
            Self::Preflight { .. } => false,
        }
    }

    /// Whether it may wait for what comes: a long-poll, or events.
    #[must_use]
    pub fn is_live(&self) -> bool {
        matches!(self, Self::Read(read) if read.live != Live::CatchUp)
    }

    /// Whether a body of it is checked as JSON, which takes longer than all the rest of a request.
    #[must_use]
    pub fn takes_json(&self) -> bool {
        match self {
            Self::Create(create) => {
                create.asked.content_type.as_ref().is_some_and(ContentType::is_json)
            }
            Self::Append(append) => append.takes_json(),
            _ => false,
        }
    }
}

/// The scheme under which clients reach this server, for absolute URLs in answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// `http`
    Http,
    /// `https`
    Https,
}

/// Reads a request from its head.
///
/// # Errors
/// The [`Problem`] to answer. The body, if there is one, must still be read past, unless the
/// connection is closed.
#[inline]
pub fn parse(head: &RequestHead<'_, '_>, way: &Way<'_>) -> Result<Request, Problem> {
    if head.method == Method::Options {
        return Ok(Request::Preflight { fields: preflight::asked_fields(head) });
    }
    let path = stream_path_by(way, head.path).ok_or_else(|| unknown_route(head.path))??;
    let mut fields = Fields::default();
    match head.method {
        Method::Post => {
            fields.find(head.fields)?;
            AppendRequest::parse(path, &fields).map(Request::Append)
        }
        Method::Get => {
            fields.find(head.fields)?;
            ReadRequest::parse(path, head.query.unwrap_or_default(), &fields).map(Request::Read)
        }
        Method::Put => {
            fields.find(head.fields)?;
            refuse_precondition(!fields.if_match.is_absent())?;
            let below = way.site.below(head.path).unwrap_or(head.path);
            let location = way.location(head, below);
            CreateRequest::parse(path, location, &fields, way).map(Request::Create)
        }
        Method::Head => read::head(path, head.query.unwrap_or_default()),
        Method::Patch => {
            fields.find(head.fields)?;
            refuse_precondition(!fields.if_match.is_absent())?;
            settings::parse(path, &fields)
        }
        Method::Delete => {
            refuse_precondition(field::is_named(head.fields, field::IF_MATCH))?;
            Ok(Request::Delete(path))
        }
        Method::Options | Method::Other => Err(method_not_allowed(head.method_text)),
    }
}

/// The stream that a path names, which may have the public URL's path before it.
fn stream_path_by(way: &Way<'_>, path: &str) -> Option<Result<StreamPath, Problem>> {
    stream_path(path).or_else(|| stream_path(way.site.below(path)?))
}

fn unknown_route(path: &str) -> Problem {
    let detail = format!(
        "There is nothing at {}; streams live under {}{{path}}.",
        quote(path.as_bytes()),
        MOUNT
    );
    Problem::with_detail(Code::UnknownRoute, detail)
}

fn method_not_allowed(method: &str) -> Problem {
    let detail = format!(
        "A stream does not know {}; use one of {}.",
        quote(method.as_bytes()),
        super::response::METHODS
    );
    Problem::with_detail(Code::MethodNotAllowed, detail)
}

#[cfg(test)]
mod tests;
