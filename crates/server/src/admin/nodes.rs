//! `PUT /cluster/nodes/N/state`: a member becomes something else.

use super::{Shared, answer::Answer};
use crate::cluster::{ChangeRefused, Peers};
use axum::extract::{Path, State};
use cluster::{MemberState, MetaCommand, MetaOutcome, NodeNumber};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Looks at groups whose voters nobody names, and the time between two: reports come each second.
const LOOKS_MAX: u32 = 12;
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// Asks the cluster for it, if it stops no group. The body is the state in one word.
pub(super) async fn set_state(
    State(shared): State<Arc<Shared>>,
    Path(number): Path<String>,
    body: String,
) -> Answer {
    let Some(peers) = shared.node.peers() else { return Answer::no_node() };
    let (Some(number), Some(state)) = (parse_number(&number), parse_state(body.trim())) else {
        return Answer::unknown_state();
    };
    let command = match plan(&shared, peers, (number, state)).await {
        Ok(command) => command,
        Err(refused) => return Answer::not_changed(&refused.to_string()),
    };
    match peers.ask(command).await {
        Ok(Some(MetaOutcome::Refused(refused))) => Answer::not_changed(&refused.to_string()),
        Ok(Some(_)) => {
            let state = body.trim();
            tracing::info!(node = number.get(), state, "an operator has changed a node");
            Answer::changed(number, state)
        }
        Ok(None) | Err(_) => Answer::no_leader(),
    }
}

/// Finds out whether it stops a group. Where leaderships move, nobody may know who votes for a moment.
async fn plan(
    shared: &Shared,
    peers: &Peers,
    change: (NodeNumber, MemberState),
) -> Result<MetaCommand, ChangeRefused> {
    let (mut looks, mut seen) = (0, BTreeSet::new());
    loop {
        let planned = peers.plan(change, &mut seen, shared.node.clock().now_monotonic());
        if looks == LOOKS_MAX || !matches!(planned, Err(ChangeRefused::Unknown(_))) {
            return planned;
        }
        looks += 1;
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

fn parse_number(text: &str) -> Option<NodeNumber> {
    text.parse().ok().filter(|number| *number > 0).map(NodeNumber::new)
}

fn parse_state(text: &str) -> Option<MemberState> {
    match text {
        "active" => Some(MemberState::Active),
        "draining" => Some(MemberState::Draining),
        "leaving" => Some(MemberState::Leaving),
        "removed" => Some(MemberState::Removed),
        _ => None,
    }
}
