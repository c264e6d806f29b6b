//! What operators do with nodes: drain, resume and remove them.

mod harness;

use harness::client::{Client, request};
use harness::cluster::{Node, grown, token};
use harness::{TEXT, thread, until};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Output};
use std::thread::JoinHandle;

/// `thalweg cluster` with these arguments, at the admin port of a node.
fn cluster(node: &Node, arguments: &[&str]) -> Output {
    let admin = format!("http://{}", node.server().admin_address());
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    command.arg("cluster").args(arguments).args(["--admin", &admin]).output().unwrap()
}

/// What a command prints that does what it is to do.
fn done(node: &Node, arguments: &[&str]) -> String {
    let output = cluster(node, arguments);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// What a command complains of that does nothing.
fn refused(node: &Node, arguments: &[&str]) -> String {
    let output = cluster(node, arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// State, leaders and replicas of a node, as another one sees it.
fn seen(by: &Node, number: usize) -> (String, u64, u64) {
    let status = by.server().cluster();
    let node = &status["nodes"][number - 1];
    let count = |key: &str| node[key].as_u64().unwrap();
    (node["state"].as_str().unwrap().to_owned(), count("leaders"), count("replicas"))
}

fn three() -> Vec<Node> {
    let nodes = grown(3, &[]);
    until("all groups have three voters", || nodes[0].server().has_three_voters());
    nodes
}

#[test]
fn a_node_is_drained_for_maintenance_and_resumed() {
    let mut nodes = three();
    let mut client = nodes[1].server().connect();
    client.put("/s", TEXT).is(201);
    let said = done(&nodes[0], &["drain", "2"]);
    assert!(said.ends_with("node 2 leads nothing, and follows until it is resumed\n"), "{said}");
    let drained = ("draining".to_owned(), 0, 65);
    until("who leads instead has spoken", || seen(&nodes[0], 2) == drained);
    client.post("/s", TEXT, b"through it;").is(204);
    nodes[1].kill();
    nodes[0].server().connect().post("/s", TEXT, b"without it;").is(204);
    nodes[1].start();
    until("it is ready", || nodes[1].server().admin("/readyz").status == 200);
    until("it stays drained over a restart", || seen(&nodes[2], 2) == drained);
    assert_eq!(done(&nodes[2], &["resume", "2"]), "node 2 takes part again\n");
    until("it leads again", || seen(&nodes[0], 2).1 > 10);
    assert_eq!(seen(&nodes[0], 2).0, "up");
    done(&nodes[0], &["drain", "1"]);
    done(&nodes[0], &["drain", "2"]);
    let said = refused(&nodes[0], &["drain", "3"]);
    assert!(said.contains("node 3 is the last one that takes part"), "{said}");
}

#[test]
fn copies_are_compared_and_nodes_that_do_not_answer_are_named() {
    let mut nodes = three();
    let mut client = nodes[1].server().connect();
    for stream in 0..20 {
        client.put(&format!("/s{stream}"), TEXT).is(201);
        client.post(&format!("/s{stream}"), TEXT, b"text;").is(204);
    }
    for node in &nodes {
        let said = done(node, &["check"]);
        assert!(said.ends_with("all 65 groups are the same on all their nodes\n"), "{said}");
    }
    nodes[2].kill();
    let mut number = String::new();
    // The nodes that are left may elect leaders first.
    until("a check begins", || {
        let mut admin = nodes[0].server().connect_admin();
        admin.send(b"PUT /cluster/check HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
        let answer = admin.answer();
        number = answer.text();
        answer.status == 200
    });
    let path = format!("/cluster/checks/{}", number.trim());
    let look = |node: &Node| -> serde_json::Value {
        serde_json::from_str(&node.server().admin(&path).text()).unwrap()
    };
    until("all groups wait for the third node", || {
        let status = look(&nodes[0]);
        let waiting = status["waiting"].as_array().unwrap();
        waiting.len() == 65 && waiting.iter().all(|it| it["nodes"] == serde_json::json!([3]))
    });
    nodes[2].start();
    until("it has caught up, and has taken part", || look(&nodes[0])["equal"] == 65);
}

/// Clients that append byte by byte until nobody listens, and how many bytes each has appended.
fn writers(address: SocketAddr) -> Vec<JoinHandle<usize>> {
    let write = move |path: String| {
        let mut count = 0;
        Client::connect(address).put(&path, TEXT).is(201);
        let append = request("POST", &path, &[("Content-Type", TEXT)], b"x");
        while let Ok(socket) = TcpStream::connect(address) {
            let mut client = Client::over(socket);
            // A connection without a request ends at once: one that is sent just then has come to nobody.
            while client.try_send(&append)
                && let Some(answer) = client.try_answer()
            {
                count += 1;
                if answer.is(204).closes() {
                    break;
                }
            }
        }
        count
    };
    (0..8).map(|it| thread("writer", move || write(format!("/w{it}")))).collect()
}

#[test]
fn a_node_gives_its_replicas_away_before_it_is_removed() {
    let mut nodes = three();
    let token = token(nodes[0].dir.path());
    let mut client = nodes[0].server().connect();
    for stream in 0..8 {
        client.put(&format!("/s{stream}"), TEXT).is(201);
        client.post(&format!("/s{stream}"), TEXT, b"kept").is(204);
    }
    let mut fourth = Node::new(Some(&token), &[]);
    fourth.start();
    nodes.push(fourth);
    // As long as nobody has heard it, groups with a copy there count as in need of the others.
    let is_up = || nodes[0].server().cluster()["nodes"][3]["state"] == "up";
    until("the fourth one is seen", is_up);
    let said = refused(&nodes[2], &["remove", "3"]);
    assert!(said.contains("cannot remove itself"), "{said}");
    let said = refused(&nodes[0], &["remove", "3", "--lost"]);
    assert!(said.contains("is up: remove it without --lost"), "{said}");
    // It answers what has come to it.
    let writers = writers(nodes[2].server().address());
    let said = done(&nodes[0], &["remove", "3"]);
    assert!(
        said.contains("replicas left\n") && said.ends_with("its data is not needed\n"),
        "{said}"
    );
    assert_eq!(seen(&nodes[0], 3).0, "removed");
    nodes[2].ends();
    let written: usize = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
    assert!(written > 100, "{written} appends");
    let said = nodes[2].refused();
    assert!(
        said.contains("node 3, which was removed from its cluster; join with an empty"),
        "{said}"
    );
    until("the others have three voters", || nodes[1].server().has_three_voters());
    let said = refused(&nodes[1], &["resume", "3"]);
    assert!(said.contains("its number is never used again"), "{said}");
    let mut client = nodes[0].server().connect();
    let kept: usize = (0..8).map(|it| client.read_all(&format!("/w{it}")).len()).sum();
    assert_eq!(kept, written, "what is there was answered");
    nodes[0].kill();
    for stream in 0..8 {
        let answer = nodes[3].server().connect().get(&format!("/s{stream}?offset=-1"));
        assert_eq!((answer.status, answer.text()), (200, "kept".to_owned()));
    }
}

#[test]
fn a_removal_that_would_stop_groups_is_refused_and_a_lost_node_goes_at_once() {
    let mut nodes = three();
    let said = refused(&nodes[0], &["remove", "9"]);
    assert!(said.contains("there is no node 9; the nodes are 1, 2, 3"), "{said}");
    nodes[2].kill();
    until("it is seen", || seen(&nodes[0], 3).0 == "down");
    until("all others lead", || nodes[0].server().cluster()["groups"]["leaderless"] == 0);
    let said = refused(&nodes[0], &["remove", "2"]);
    // Groups whose next leader has not spoken yet are not among them.
    let named = "without node 2 these groups would have no majority: ";
    assert!(said.contains(named) && said.contains("nodes 3\n"), "{said}");
    let said = done(&nodes[0], &["remove", "3", "--lost"]);
    assert!(said.starts_with("node 3 is removed."), "{said}");
    until("it is removed everywhere", || seen(&nodes[1], 3).0 == "removed");
    // It learns of that from who refuses to talk to it.
    nodes[2].start();
    nodes[2].ends();
    let said = nodes[2].refused();
    assert!(said.contains("node 3, which was removed from its cluster"), "{said}");
    nodes[0].server().connect().put("/s", TEXT).is(201);
}
