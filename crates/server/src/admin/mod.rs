//! The admin server: is the process alive, is it ready, and what does it count.
//!
//! It has a thread, an event loop and a port of its own. So it answers while every shard is busy, and
//! its port can stay off public networks. It uses a web framework and not our own parser, since speed
//! does not matter here. It changes nothing but by the three calls below, for whom the [`guard`] lets through.
//!
//! - `/healthz` is 200 while every shard runs its loop, or 503 with the shard that does not, since when.
//! - `/readyz` is 200, or 503 with a reason for each shard that is not ready. A panic is none of them: the
//!   process ends with it.
//! - `/metrics` is all counters in the OpenMetrics text format.
//! - `PUT /clock/confirm` believes the clock, and `PUT /reload` reads certificates again: 422 with what is wrong.
//! - `/cluster` is how the cluster is; `PUT /cluster/nodes/N/state` makes a member active, draining, leaving or removed.
//!   `PUT /cluster/check` has all copies compare their states, and `/cluster/checks/N` is what came of it.
//! - Everything else is 404 and says what there is.
//!
//! Bounded: [`CONNECTIONS_MAX`] connections at a time, each at most [`CONNECTION_SECONDS_MAX`] old.

#![expect(
    clippy::disallowed_methods,
    reason = "the admin thread runs beside the shards; it starts itself and reads its own clock"
)]

mod answer;
pub(crate) mod ask;
mod checks;
mod gauge;
mod guard;
mod nodes;
mod process;
mod render;
mod render_cluster;

use crate::metrics::NodeMetrics;
use crate::reload::Asker;
use answer::Answer;
use axum::extract::{Extension, State};
use axum::routing::{get, put};
use axum::{Router, middleware};
use guard::{Ends, Guard};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Connections open at a time; one more waits in the backlog. Scrapers and probes need a few.
pub const CONNECTIONS_MAX: usize = 64;

/// Age at which a connection is closed, used or not, so that idle ones cannot take every place.
pub const CONNECTION_SECONDS_MAX: u64 = 60;

/// How long a request's head may take.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// A running admin server. It stops when this is stopped or dropped.
#[derive(Debug)]
pub struct Admin {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Admin {
    /// The address it listens on, with the port that was taken if the setting was 0.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops answering and waits for the thread to end.
    pub fn stop(self) {
        drop(self.stop);
        if self.thread.join().is_err() {
            tracing::error!("the admin thread panicked");
        }
    }
}

struct Shared {
    node: Arc<NodeMetrics>,
    started: Instant,
    reload: Asker,
}

/// Starts the admin server on `listen`, of a server that is to be a node of a cluster or is not. It answers from then on, also while shards recover.
///
/// # Errors
/// What the system says if the address cannot be listened on or the thread cannot be started.
pub fn start(
    (listen, is_node): (SocketAddr, bool),
    node: Arc<NodeMetrics>,
    reload: Asker,
) -> io::Result<Admin> {
    let listener = std::net::TcpListener::bind(listen)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (stop, stopped) = oneshot::channel();
    let guard = Guard::new(is_node, &node);
    let routes = routes(Arc::new(Shared { node, started: Instant::now(), reload }), guard);
    let thread = std::thread::Builder::new().name("admin".to_owned()).spawn(move || {
        runtime.block_on(async move {
            tokio::select! {
                _ = stopped => {}
                result = accept(listener, routes) => {
                    if let Err(error) = result {
                        tracing::error!(%error, "the admin server ended");
                    }
                }
            }
        });
    })?;
    Ok(Admin { address, stop, thread })
}

fn routes(shared: Arc<Shared>, guard: Arc<Guard>) -> Router {
    let changes = Router::new()
        .route("/clock/confirm", put(confirm_clock))
        .route("/reload", put(reload))
        .route("/cluster/nodes/{number}/state", put(nodes::set_state))
        .route("/cluster/check", put(checks::begin))
        .method_not_allowed_fallback(async || Answer::read_only())
        .route_layer(middleware::from_fn_with_state(guard, guard::guard));
    Router::new()
        .route(
            "/healthz",
            get(async |State(shared): State<Arc<Shared>>| Answer::health(&shared.node)),
        )
        .route(
            "/readyz",
            get(async |State(shared): State<Arc<Shared>>| Answer::readiness(&shared.node)),
        )
        .route("/metrics", get(metrics))
        .route(
            "/cluster",
            get(async |State(shared): State<Arc<Shared>>| Answer::cluster(&shared.node)),
        )
        .route("/cluster/checks/{number}", get(checks::status))
        .method_not_allowed_fallback(async || Answer::read_only())
        .merge(changes)
        .fallback(async || Answer::unknown())
        .with_state(shared)
}

/// A `PUT`, which no web page can send here without being asked whether it may.
async fn confirm_clock(State(shared): State<Arc<Shared>>) -> Answer {
    shared.node.confirm_clock();
    tracing::warn!("the clock is being confirmed by the admin server");
    Answer::confirmed()
}

/// Certificates are read again; the answer says what came of it. A `PUT`, as above.
async fn reload(State(shared): State<Arc<Shared>>) -> Answer {
    let (ask, answer) = oneshot::channel();
    if shared.reload.try_send(ask).is_err() {
        return Answer::busy();
    }
    match answer.await {
        Ok(Ok(())) => Answer::reloaded(),
        Ok(Err(why)) => Answer::not_reloaded(why),
        Err(_) => Answer::busy(),
    }
}

async fn metrics(State(shared): State<Arc<Shared>>) -> Answer {
    let process = process::Reading::now(shared.started.elapsed());
    Answer::metrics(render::render(&shared.node, process))
}

async fn accept(listener: std::net::TcpListener, routes: Router) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let place = Arc::clone(&places).acquire_owned().await.expect("nobody closes the places");
        match listener.accept().await {
            Ok((socket, peer)) => {
                let own = socket.local_addr().ok();
                let routes = routes.clone().layer(Extension(Ends { own, peer }));
                drop(tokio::spawn(serve(socket, routes, place)));
            }
            Err(error) => {
                tracing::warn!(%error, "the admin server could not accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve(socket: TcpStream, routes: Router, place: OwnedSemaphorePermit) {
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(socket), TowerToHyperService::new(routes));
    let age_max = Duration::from_secs(CONNECTION_SECONDS_MAX);
    // Neither a broken connection nor an old one is news: the prober connects again.
    let _ = tokio::time::timeout(age_max, connection).await;
    drop(place);
}
