//! Three real processes whose groups replicate.

mod harness;

use harness::cluster::{Node, nodes};
use harness::{Client, until};

fn put(client: &mut Client, path: &str) -> u16 {
    let head = format!(
        "PUT /v1/stream/{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 0\r\n\r\n"
    );
    client.send(head.as_bytes());
    client.answer().status
}

fn append(client: &mut Client, path: &str, data: &str) -> u16 {
    let head = format!(
        "POST /v1/stream/{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{data}",
        data.len()
    );
    client.send(head.as_bytes());
    client.answer().status
}

fn read(node: &Node, path: &str) -> (u16, String) {
    let mut client = node.server().connect();
    client.send(
        format!("GET /v1/stream/{path}?offset=-1 HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes(),
    );
    let answer = client.answer();
    (answer.status, answer.text())
}

#[test]
fn what_one_node_acknowledges_all_serve_and_one_may_die() {
    let mut nodes = nodes(3, &[]);
    nodes.iter_mut().for_each(Node::start);
    let mut clients: Vec<Client> = nodes.iter().map(|node| node.server().connect()).collect();
    for stream in 0..12 {
        let client = &mut clients[stream % 3];
        assert_eq!(put(client, &format!("s{stream}")), 201, "stream {stream}");
    }
    for round in 0..10 {
        for stream in 0..12 {
            let client = &mut clients[(stream + round) % 3];
            assert_eq!(append(client, &format!("s{stream}"), &format!("{round};")), 204);
        }
    }
    let expected = "0;1;2;3;4;5;6;7;8;9;";
    for (number, node) in nodes.iter().enumerate() {
        for stream in 0..12 {
            let found = read(node, &format!("s{stream}"));
            assert_eq!(found, (200, expected.to_owned()), "stream {stream} of node {number}");
        }
    }
    nodes[0].kill();
    for stream in 0..12 {
        assert_eq!(append(&mut clients[1], &format!("s{stream}"), "x;"), 204, "stream {stream}");
    }
    nodes[0].start();
    let expected = expected.to_owned() + "x;";
    for stream in 0..12 {
        until("the node that was away has everything", || {
            read(&nodes[0], &format!("s{stream}")) == (200, expected.clone())
        });
    }
}
