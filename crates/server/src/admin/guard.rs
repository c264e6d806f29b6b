//! Which callers may change something by the admin port.
//!
//! # Rules
//! - A connection of this machine to itself may, unless a browser made it for a page that has bound its name to this machine: its
//!   `Host` says so.
//! - On a server that is no node of a cluster everybody may, as ever: its port is to be on loopback.
//! - On a node others need the cluster's secret ([`cluster::CallProof`]).

use super::answer::Answer;
use crate::metrics::NodeMetrics;
use axum::body::{Body, to_bytes};
use axum::extract::{Extension, Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use cluster::{AdminCall, CallProof, CallRefused, Calls, NodeNumber, Secret};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of what a call says.
const BODY_BYTES_MAX: usize = 4096;

/// The two ends of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ends {
    pub(super) own: Option<SocketAddr>,
    pub(super) peer: SocketAddr,
}

impl Ends {
    fn are_here(&self) -> bool {
        let is_here = |address: SocketAddr| address.ip().to_canonical().is_loopback();
        self.own.is_some_and(is_here) && is_here(self.peer)
    }
}

/// Whom a server lets change something.
#[derive(Debug)]
pub(super) struct Guard {
    is_node: bool,
    node: Arc<NodeMetrics>,
    calls: Mutex<Calls>,
}

impl Guard {
    /// Of a server that starts now.
    pub(super) fn new(is_node: bool, node: &Arc<NodeMetrics>) -> Arc<Self> {
        let calls = Mutex::new(Calls::new(node.clock().now_wall()));
        Arc::new(Self { is_node, node: Arc::clone(node), calls })
    }

    /// Takes a call with its proof.
    fn take(
        &self,
        secret: &Secret,
        call: &AdminCall<'_>,
        proof: &CallProof,
    ) -> Result<(), CallRefused> {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.take((secret, call), proof, self.node.clock().now_wall())
    }
}

/// Lets a call through that may change something.
pub(super) async fn guard(
    State(guard): State<Arc<Guard>>,
    Extension(ends): Extension<Ends>,
    request: Request,
    next: Next,
) -> Response {
    if ends.are_here() && !names_this_machine(request.headers()) {
        return Answer::foreign_host().into_response();
    }
    if ends.are_here() || !guard.is_node {
        return next.run(request).await;
    }
    let Some(peers) = guard.node.peers() else { return Answer::busy().into_response() };
    let (parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, BODY_BYTES_MAX).await else {
        return Answer::unproven("the call says too much").into_response();
    };
    let shown = parts.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let Some(proof) = shown.and_then(CallProof::parse) else {
        return Answer::unproven(NO_PROOF).into_response();
    };
    let node: NodeNumber = peers.number();
    let path = parts.uri.path_and_query().map_or("", |path| path.as_str());
    let call = AdminCall { method: parts.method.as_str(), path, node, body: &body };
    if let Err(refused) = guard.take(&peers.secret(), &call, &proof) {
        tracing::warn!(address = %ends.peer.ip(), path, %refused, "a call of the admin port was refused");
        return Answer::unproven(&refused.to_string()).into_response();
    }
    next.run(Request::from_parts(parts, Body::from(body))).await
}

const NO_PROOF: &str = "A node of a cluster lets others than this machine change something only with a proof that they know the \
                        cluster's secret. `thalweg cluster` makes one from --cluster-secret-file or --data-dir.";

/// Whether a request is meant for this machine by its address or as localhost.
fn names_this_machine(headers: &HeaderMap) -> bool {
    // A client that is no browser may leave it out.
    let Some(host) = headers.get(header::HOST) else { return true };
    let Ok(host) = host.to_str() else { return false };
    let is_port = |port: &str| port.bytes().all(|digit| digit.is_ascii_digit());
    let name = match host.rsplit_once(':') {
        Some((name, port)) if is_port(port) => name,
        _ => host,
    };
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    bare.parse::<IpAddr>().is_ok() || name == "localhost" || name.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::ask::{AdminPort, AskError};
    use crate::cluster::Peers;
    use cluster::{Member, MemberState, Membership};
    use env::{Clock, MemoryDisk, RealClock};
    use model::Timestamp;
    use std::time::Instant;
    use tokio::sync::{Semaphore, mpsc};

    const OWN: &str = "10.0.0.1:4440";

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn secret() -> Secret {
        Secret::new([7; 32])
    }

    /// Node 1 of a cluster.
    fn peers() -> Peers {
        let own = Member {
            store: 1,
            peer_address: "n1:4439".to_owned(),
            client_address: String::new(),
            state: MemberState::Active,
            version: 1,
            epoch: 1,
        };
        let at = (Arc::new(MemoryDisk::new()) as Arc<dyn env::Disk>, "d".into());
        Peers::new(Membership::first(1, 64, own), secret(), at)
    }

    /// An admin port whose connections all have these ends, as far as it knows.
    fn port(is_node: bool, (own, peer): (&str, &str)) -> AdminPort {
        let node = NodeMetrics::new(1, Arc::new(RealClock::new()));
        node.set_peers(is_node.then(|| Arc::new(peers())));
        let (reload, _) = mpsc::channel(1);
        let guard = Guard::new(is_node, &node);
        let shared = super::super::Shared { node, started: Instant::now(), reload };
        let ends = Ends { own: Some(address(own)), peer: address(peer) };
        let routes = super::super::routes(Arc::new(shared), guard).layer(Extension(ends));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        listener.set_nonblocking(true).unwrap();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let places = Arc::new(Semaphore::new(9));
                while let Ok((socket, _)) = listener.accept().await {
                    let place = Arc::clone(&places).acquire_owned().await.unwrap();
                    super::super::serve(socket, routes.clone(), place).await;
                }
            });
        });
        AdminPort::at(&url).unwrap()
    }

    fn confirm(port: &AdminPort, proof: Option<&CallProof>) -> Result<String, AskError> {
        port.put("/clock/confirm", String::new(), proof.map(ToString::to_string))
    }

    fn refusal(answer: Result<String, AskError>) -> String {
        answer.expect_err("it is refused").to_string()
    }

    #[test]
    fn a_node_lets_others_change_something_with_the_secret_alone_and_once() {
        let port = port(true, (OWN, "10.0.0.2:5000"));
        assert_eq!(port.get("/healthz").unwrap(), "alive\n", "everybody may look");
        assert!(refusal(confirm(&port, None)).contains("--cluster-secret-file"));
        let (path, node) = ("/clock/confirm", NodeNumber::new(1));
        let call = AdminCall { method: "PUT", path, node, body: b"" };
        let now = Timestamp::new(RealClock::new().now_wall().get() + 1);
        let proof = call.prove(&secret(), now, [1; 16]);
        assert_eq!(confirm(&port, Some(&proof)).unwrap(), "the clock is confirmed\n");
        assert!(refusal(confirm(&port, Some(&proof))).contains("came before"));
        for (call, secret) in [
            (AdminCall { path: "/reload", ..call }, secret()),
            (AdminCall { node: NodeNumber::new(2), ..call }, secret()),
            (call, Secret::new([8; 32])),
        ] {
            let proof = call.prove(&secret, now, [2; 16]);
            assert!(refusal(confirm(&port, Some(&proof))).contains("the proof is wrong"));
        }
    }

    #[test]
    fn this_machine_and_a_server_without_a_cluster_need_no_proof() {
        for (is_node, own, peer) in
            [(true, "127.0.0.1:4440", "127.0.0.1:5000"), (false, OWN, "10.0.0.2:5000")]
        {
            let port = port(is_node, (own, peer));
            assert_eq!(confirm(&port, None).unwrap(), "the clock is confirmed\n");
        }
    }

    #[test]
    fn only_a_node_has_members_and_their_states_are_words() {
        let here = ("127.0.0.1:4440", "127.0.0.1:5000");
        let put = |port: &AdminPort, node: &str, state: &str| {
            refusal(port.put(&format!("/cluster/nodes/{node}/state"), state.to_owned(), None))
        };
        let alone = port(false, here);
        assert!(put(&alone, "1", "draining").contains("no node of a cluster"));
        let node = port(true, here);
        assert!(put(&node, "1", "asleep").contains("one of these words"));
        assert!(put(&node, "0", "draining").contains("one of these words"));
        assert!(put(&node, "1", "draining").contains("the only one"));
    }

    #[test]
    fn names_that_a_page_can_bind_are_not_those_of_this_machine() {
        let names = |host: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            names_this_machine(&headers)
        };
        for host in ["127.0.0.1:4440", "[::1]:4440", "localhost", "LOCALHOST.:4440", "10.0.0.7"] {
            assert!(names(host), "{host}");
        }
        for host in ["evil.example", "evil.example:4440", "localhost.evil.example", ""] {
            assert!(!names(host), "{host}");
        }
        assert!(names_this_machine(&HeaderMap::new()));
    }

    #[test]
    fn both_ends_must_be_here() {
        let are_here = |own: Option<&str>, peer: &str| {
            Ends { own: own.map(address), peer: address(peer) }.are_here()
        };
        assert!(are_here(Some("127.0.0.1:1"), "127.0.0.9:2"));
        assert!(are_here(Some("[::ffff:127.0.0.1]:1"), "[::1]:2"));
        assert!(!are_here(Some("10.0.0.1:1"), "10.0.0.1:2"), "a proxy may be in between");
        assert!(!are_here(Some("127.0.0.1:1"), "10.0.0.1:2"));
        assert!(!are_here(None, "127.0.0.1:1"));
    }
}
