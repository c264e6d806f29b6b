//! `PUT /cluster/check`: the copies of all groups compare their states. `/cluster/checks/N` is what came of it.

use super::{Shared, answer::Answer};
use crate::cluster::ChangeRefused;
use axum::extract::{Path, State};
use cluster::{MetaCommand, MetaOutcome};
use std::sync::Arc;

/// Asks the cluster for a check. The answer is its number.
pub(super) async fn begin(State(shared): State<Arc<Shared>>) -> Answer {
    let Some(peers) = shared.node.peers() else { return Answer::no_node() };
    if peers.is_alone(shared.node.clock().now_monotonic()) {
        return Answer::not_changed(&ChangeRefused::Alone.to_string());
    }
    match peers.ask(MetaCommand::Check).await {
        Ok(Some(MetaOutcome::Checking(number))) => Answer::checking(number),
        Ok(Some(other)) => Answer::not_changed(&format!("the cluster has answered {other:?}")),
        Ok(None) | Err(_) => Answer::no_leader(),
    }
}

/// How a check is.
pub(super) async fn status(
    State(shared): State<Arc<Shared>>,
    Path(number): Path<String>,
) -> Answer {
    let Some(peers) = shared.node.peers() else { return Answer::no_node() };
    match number.parse::<u64>() {
        Ok(number) => Answer::json(&peers.compared(number, shared.node.clock().now_monotonic())),
        Err(_) => Answer::unknown(),
    }
}
