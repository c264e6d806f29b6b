//! Three real processes whose groups replicate.

mod harness;

use harness::cluster::{Node, grown};
use harness::{Client, TEXT, until};
use serde_json::Value;

const STREAMS: usize = 12;

fn clients(nodes: &[Node]) -> Vec<Client> {
    nodes.iter().map(|node| node.server().connect()).collect()
}

/// Streams with ten appends each, which come to one node after the other.
fn fill(clients: &mut [Client]) -> String {
    for stream in 0..STREAMS {
        clients[stream % 3].put(&format!("/s{stream}"), TEXT).is(201);
    }
    for round in 0..10 {
        for stream in 0..STREAMS {
            let client = &mut clients[(stream + round) % 3];
            client.post(&format!("/s{stream}"), TEXT, format!("{round};").as_bytes()).is(204);
        }
    }
    (0..10).map(|round| format!("{round};")).collect()
}

fn read(client: &mut Client, path: &str) -> (u16, String) {
    let answer = client.get(&format!("{path}?offset=-1"));
    (answer.status, answer.text())
}

#[test]
fn what_one_node_acknowledges_all_serve_and_one_may_die() {
    let mut nodes = grown(3, &[]);
    let mut clients = clients(&nodes);
    let expected = fill(&mut clients);
    for (number, client) in clients.iter_mut().enumerate() {
        for stream in 0..STREAMS {
            let found = read(client, &format!("/s{stream}"));
            assert_eq!(found, (200, expected.clone()), "stream {stream} of node {number}");
        }
    }
    until("all groups have three voters", || nodes[0].server().has_three_voters());
    nodes[0].kill();
    for stream in 0..STREAMS {
        clients[1].post(&format!("/s{stream}"), TEXT, b"x;").is(204);
    }
    nodes[0].start();
    let mut client = nodes[0].server().connect();
    let expected = expected + "x;";
    for stream in 0..STREAMS {
        until("the node that was away has everything", || {
            read(&mut client, &format!("/s{stream}")) == (200, expected.clone())
        });
    }
}

#[test]
fn a_fork_is_made_and_read_anywhere_wherever_its_source_is_led() {
    let nodes = grown(3, &[]);
    let mut clients = clients(&nodes);
    let expected = fill(&mut clients);
    for stream in 0..STREAMS {
        let fork = format!("/fork-of-{stream}");
        let source = format!("/v1/stream/s{stream}");
        let fields = [("Stream-Forked-From", &source[..])];
        clients[stream % 3].call("PUT", &fork, &fields, b"").is(201);
        clients[(stream + 1) % 3].call("PUT", &fork, &fields, b"").is(200);
        clients[(stream + 2) % 3].post(&fork, TEXT, b"x;").is(204);
        for client in &mut clients {
            assert_eq!(read(client, &fork), (200, format!("{expected}x;")), "stream {stream}");
        }
        clients[stream % 3].delete(&format!("/s{stream}")).is(204);
        clients[1].get(&format!("/s{stream}")).is(410);
        assert_eq!(read(&mut clients[2], &fork), (200, format!("{expected}x;")));
        clients[(stream + 1) % 3].delete(&fork).is(204);
        until("the source is gone with its last fork", || {
            clients[2].get(&format!("/s{stream}")).status == 404
        });
    }
}

fn status(node: &Node) -> Value {
    node.server().cluster()
}

/// State and lag of each node, and how many groups there are, without a leader, and with too few voters.
fn view(status: &Value) -> (Vec<&str>, [u64; 3]) {
    let nodes = status["nodes"].as_array().unwrap().iter();
    let states = nodes.map(|node| node["state"].as_str().unwrap()).collect();
    let groups = &status["groups"];
    let counts = ["total", "leaderless", "under_replicated"].map(|key| groups[key].as_u64());
    (states, counts.map(Option::unwrap))
}

#[test]
fn every_node_knows_how_all_of_them_are() {
    let mut nodes = grown(3, &[]);
    for node in &nodes {
        until("all groups are led and whole", || {
            let status = status(node);
            let (states, groups) = view(&status);
            let leaders = status["nodes"].as_array().unwrap().iter().map(|it| &it["leaders"]);
            let led: u64 = leaders.map(|it| it.as_u64().unwrap()).sum();
            let mut nodes = status["nodes"].as_array().unwrap().iter();
            let are_heard = nodes.all(|it| it["version"].is_string());
            states == ["up"; 3] && groups[1..] == [0, 0] && led == groups[0] && are_heard
        });
    }
    let found = status(&nodes[1]);
    assert!(found["nodes"].as_array().unwrap().iter().all(|it| it["replicas"] == 65), "{found}");
    assert!(found["nodes"][2]["version"].as_str().is_some_and(|it| !it.is_empty()), "{found}");
    let numbers = [
        "node_up{node=\"3\"} 1",
        "node_replicas{node=\"1\"} 65",
        "group_voters{group=\"0\"} 3",
        "groups_under_replicated 0",
    ];
    // A node that was not heard for a moment counts as away.
    until("the metrics say the same", || {
        let metrics = nodes[1].server().admin("/metrics").text();
        numbers.iter().all(|number| metrics.contains(&format!("thalweg_cluster_{number}\n")))
    });
    nodes[0].kill();
    for node in &nodes[1..] {
        until("all groups lack a voter and none a leader", || {
            let status = status(node);
            view(&status) == (vec!["down", "up", "up"], [65, 0, 65])
        });
    }
    let mut clients = [nodes[1].server().connect(), nodes[2].server().connect()];
    clients[0].put("/s", TEXT).is(201);
    for _ in 0..20 {
        clients[1].post("/s", TEXT, b"x").is(204);
    }
    until("it is known what the node that is away lacks", || {
        status(&nodes[2])["nodes"][0]["lag_entries"].as_u64().unwrap() >= 20
    });
    nodes[1].kill();
    until("a node alone of three knows that nobody leads", || {
        let status = status(&nodes[2]);
        view(&status) == (vec!["down", "down", "up"], [65, 65, 65])
    });
}

/// Whether a node takes requests as far as it knows, and the reasons if not.
fn readiness(node: &Node) -> (u16, Vec<String>) {
    let answer = node.server().admin("/readyz");
    let problem: Value = serde_json::from_str(&answer.text()).unwrap_or_default();
    let reasons = problem["reasons"].as_array().into_iter().flatten();
    (answer.status, reasons.map(|reason| reason["reason"].as_str().unwrap().to_owned()).collect())
}

#[test]
fn a_node_is_ready_when_it_has_what_was_committed_at_its_start() {
    let mut nodes = grown(3, &[]);
    until("all groups have three voters", || nodes[0].server().has_three_voters());
    for node in &nodes {
        until("the node is ready", || readiness(node) == (200, Vec::new()));
    }
    fill(&mut clients(&nodes));
    nodes.iter_mut().for_each(Node::kill);
    nodes[0].start();
    let waits = (503, vec!["catching_up".to_owned(); 2]);
    until("the node waits for a leader", || readiness(&nodes[0]) == waits);
    nodes[1].start();
    for node in &nodes[..2] {
        until("the node is ready again", || readiness(node) == (200, Vec::new()));
    }
}
