//! The yardstick on hyper: what a server costs whose HTTP is a library's, before it does anything. It takes HTTP/1.1 and HTTP/2 by
//! prior knowledge.
//!
//! The same loop and the same answers as [`super::bare`], so the two differ by the library alone.

use super::bare;
use crate::failure::Outcome;
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;

/// Prints the address and answers until the process is killed.
pub(super) fn serve(address: SocketAddr) -> Outcome<()> {
    bare::serve_each(address, async |socket| {
        let server = auto::Builder::new(TokioExecutor::new());
        server.serve_connection(TokioIo::new(socket), service_fn(answer)).await
    })
}

async fn answer(request: Request<Incoming>) -> hyper::Result<Response<String>> {
    let (head, mut body) = request.into_parts();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        frame?;
    }
    let mut response = Response::new(String::new());
    *response.status_mut() = status(&head.method);
    Ok(response)
}

fn status(method: &Method) -> StatusCode {
    match *method {
        Method::PUT => StatusCode::CREATED,
        Method::GET => StatusCode::NOT_FOUND,
        _ => StatusCode::NO_CONTENT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_answers_as_the_bare_responder_does() {
        assert_eq!(status(&Method::PUT), 201);
        assert_eq!(status(&Method::GET), 404);
        assert_eq!(status(&Method::POST), 204);
    }
}
