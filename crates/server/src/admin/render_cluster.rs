//! The cluster as OpenMetrics text: its nodes and its groups, as this node sees them.

use super::gauge::gauge;
use crate::cluster::{GroupStatus, NodeStatus, Peers};
use model::Monotonic;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use std::fmt;

type ReadNode = fn(&NodeStatus) -> usize;
type ReadGroup = fn(&GroupStatus) -> u64;

/// Name, meaning and field of each number of a node.
const OF_NODES: &[(&str, &str, ReadNode)] = &[
    (
        "cluster_node_up",
        "The node has links with this one in both directions, or is this one",
        |n| usize::from(n.up),
    ),
    ("cluster_node_leaders", "Groups that the node leads", |n| n.leaders),
    ("cluster_node_replicas", "Groups of which the node has a replica", |n| n.replicas),
    (
        "cluster_node_lag_entries",
        "Entries that the node lacks in the group in which it lacks most",
        |n| usize::try_from(n.lag_entries).unwrap_or(usize::MAX),
    ),
];

/// Name, meaning and field of each number of a group.
const OF_GROUPS: &[(&str, &str, ReadGroup)] = &[
    ("cluster_group_leader", "The node that leads the group; 0 if nobody does", |g| {
        g.leader.map_or(0, u64::from)
    }),
    ("cluster_group_term", "The term of the group", |g| g.term),
    ("cluster_group_voters", "Voters of the group", |g| g.voters as u64),
    ("cluster_group_voters_heard", "Voters that the leader of the group has heard lately", |g| {
        g.voters_heard as u64
    }),
];

/// Writes all of it.
pub(super) fn encode(
    encoder: &mut DescriptorEncoder<'_>,
    peers: &Peers,
    now: Monotonic,
) -> fmt::Result {
    let (status, groups) = peers.view(now);
    for (name, help, read) in OF_NODES {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for node in &status.nodes {
            let labels = [("node", node.number.to_string())];
            gauge(read(node) as u64).encode(metric.encode_family(&labels)?)?;
        }
    }
    for (name, help, read) in OF_GROUPS {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for group in &groups {
            let labels = [("group", group.group.to_string())];
            gauge(read(group)).encode(metric.encode_family(&labels)?)?;
        }
    }
    let all = [
        ("cluster_groups", "Groups of the cluster, its own included", status.groups.total),
        ("cluster_groups_leaderless", "Groups that nobody leads", status.groups.leaderless),
        (
            "cluster_groups_under_replicated",
            "Groups that have or hear fewer voters than they shall have",
            status.groups.under_replicated,
        ),
    ];
    for (name, help, count) in all {
        let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        gauge(count as u64).encode(metric)?;
    }
    Ok(())
}
