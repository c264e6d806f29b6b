//! The status of a cluster as people read it.

use super::status::{GroupsStatus, NodeStatus, Status};
use std::fmt::Write;

const HEAD: [&str; 7] = ["NODE", "STATE", "ADDRESS", "LEADERS", "REPLICAS", "LAG", "VERSION"];

/// Columns of numbers, which end at the same place.
const NUMBERS: [bool; 7] = [true, false, false, true, true, true, false];

/// A table of the nodes, and a sentence about the groups.
pub(super) fn table(status: &Status) -> String {
    let mut rows = vec![HEAD.map(str::to_owned)];
    rows.extend(status.nodes.iter().map(row));
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..HEAD.len()).map(width).collect();
    let mut out = format!("cluster {}, as node {} sees it\n\n", status.cluster, status.number);
    for row in &rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            let _ = match NUMBERS[column] {
                true => write!(line, "{cell:>width$}  "),
                false => write!(line, "{cell:<width$}  "),
            };
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    for node in &status.nodes {
        if let Some(trouble) = node.trouble.as_ref().filter(|_| !node.up) {
            let _ = write!(out, "\nnode {}: {trouble}", node.number);
        }
    }
    let _ = write!(out, "\n{}\n", groups(status.groups));
    out
}

fn row(node: &NodeStatus) -> [String; 7] {
    let is_told = node.up || matches!(node.state.as_str(), "down" | "removed");
    let state = if is_told { node.state.clone() } else { format!("{}, down", node.state) };
    [
        node.number.to_string(),
        state,
        node.address.clone(),
        node.leaders.to_string(),
        node.replicas.to_string(),
        node.lag_entries.to_string(),
        node.version.clone().unwrap_or_default(),
    ]
}

fn groups(groups: GroupsStatus) -> String {
    let GroupsStatus { total, leaderless, under_replicated } = groups;
    let led = match leaderless {
        0 => "all have a leader".to_owned(),
        some => format!("{some} have no leader"),
    };
    let whole = match under_replicated {
        0 => "all have their voters, and any one node may go".to_owned(),
        some => format!("{some} have too few voters: losing one more node may stop them"),
    };
    format!("{total} groups: {led}; {whole}.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u16, state: &str, up: bool) -> NodeStatus {
        NodeStatus {
            number,
            address: format!("10.0.0.{number}:4439"),
            client_address: String::new(),
            state: state.to_owned(),
            up,
            leaders: 22,
            replicas: 65,
            lag_entries: 1_000 * u64::from(number),
            version: up.then(|| "0.1.0".to_owned()),
            trouble: (!up).then(|| "it does not answer".to_owned()),
        }
    }

    #[test]
    fn a_table_has_a_line_for_each_node_and_a_sentence_for_the_groups() {
        let nodes = vec![node(1, "up", true), node(2, "draining", false), node(10, "down", false)];
        let groups = GroupsStatus { total: 65, leaderless: 3, under_replicated: 65 };
        let cluster = "00000000000000c1".to_owned();
        let mut status = Status { cluster, number: 1, nodes, groups };
        let expected = "\
cluster 00000000000000c1, as node 1 sees it

NODE  STATE           ADDRESS         LEADERS  REPLICAS    LAG  VERSION
   1  up              10.0.0.1:4439        22        65   1000  0.1.0
   2  draining, down  10.0.0.2:4439        22        65   2000
  10  down            10.0.0.10:4439       22        65  10000

node 2: it does not answer
node 10: it does not answer
65 groups: 3 have no leader; 65 have too few voters: losing one more node may stop them.
";
        assert_eq!(table(&status), expected);
        status.groups = GroupsStatus { total: 65, leaderless: 0, under_replicated: 0 };
        status.nodes.truncate(1);
        let end = "65 groups: all have a leader; all have their voters, and any one node may go.\n";
        assert!(table(&status).ends_with(&format!("0.1.0\n\n{end}")), "{}", table(&status));
    }
}
