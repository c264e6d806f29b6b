//! Nodes that join a cluster, and nodes that must not.

mod harness;

use env::{Disk, RealDisk};
use harness::cluster::{Node, grown, token};
use harness::{Client, TEXT, thread, until};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

/// A client that appends to streams in turn, and takes no answer but success.
struct Writer {
    is_over: Arc<AtomicBool>,
    written: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Writer {
    fn start(mut client: Client, streams: u64) -> Self {
        let (is_over, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (ends, counts) = (Arc::clone(&is_over), Arc::clone(&written));
        let thread = thread("writer", move || {
            while !ends.load(Ordering::Relaxed) {
                let number = counts.load(Ordering::Relaxed);
                let body = format!("{number};");
                client.post(&format!("/s{}", number % streams), TEXT, body.as_bytes()).is(204);
                counts.store(number + 1, Ordering::Relaxed);
            }
        });
        Self { is_over, written, thread }
    }

    /// How many appends were acknowledged.
    fn end(self) -> u64 {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        let written = self.written.load(Ordering::Relaxed);
        assert!(written > 0);
        written
    }
}

#[test]
fn a_cluster_grows_under_writes_and_lives_on_without_its_first_node() {
    let mut first = Node::new(None, &[]);
    first.start();
    let mut client = first.server().connect();
    for stream in 0..8 {
        client.put(&format!("/s{stream}"), TEXT).is(201);
        client.post(&format!("/s{stream}"), TEXT, b"before;").is(204);
    }
    let token = token(first.dir.path());
    let mut others = [Node::new(Some(&token), &[]), Node::new(Some(&token), &[])];
    let writer = Writer::start(client, 8);
    others.iter_mut().for_each(Node::start);
    until("all groups have three voters", || first.server().has_three_voters());
    let written = writer.end();
    first.kill();
    for stream in 0..8 {
        let appended = (0..written).filter(|number| number % 8 == stream);
        let expected: String = appended.map(|number| format!("{number};")).collect();
        for node in &others {
            let answer = node.server().connect().get(&format!("/s{stream}?offset=-1"));
            assert_eq!((answer.status, answer.text()), (200, format!("before;{expected}")));
        }
    }
}

#[test]
fn a_node_with_data_of_its_own_does_not_join_and_keeps_it() {
    let nodes = grown(1, &[]);
    let token = token(nodes[0].dir.path());
    let mut own = Node::new(Some(&token), &[]);
    let alone = harness::Start::with(&[]);
    let mut server = alone.serve(own.dir.path());
    server.connect().put("/mine", TEXT).is(201);
    server.stop();
    let said = own.refused();
    assert!(said.contains("holds 1 streams; a node joins empty"), "{said}");
    server = alone.serve(own.dir.path());
    server.connect().get("/mine").is(200);
    server.stop();
    own = grown(1, &[]).remove(0);
    own.kill();
    let said = own.with_token(&token).refused(own.dir.path());
    assert!(said.contains("the token is of the cluster"), "{said}");
}

#[test]
fn a_wrong_token_is_refused_in_words_that_do_not_show_it() {
    let nodes = grown(1, &[]);
    let token = token(nodes[0].dir.path());
    let secret = token.split(':').nth(2).unwrap().split('@').next().unwrap();
    let wrong = token.replace(secret, &"7".repeat(64));
    for (token, says) in [
        (wrong, "does not know the cluster's secret"),
        (token.replacen(&token[9..25], "00000000000000aa", 1), "belongs to cluster"),
        (token[..60].to_owned(), "the setting join is no token"),
    ] {
        let node = Node::new(Some(&token), &[]);
        let said = node.refused();
        assert!(said.contains(says) && !said.contains(secret), "{said}");
        assert_eq!(RealDisk.list(node.dir.path()).unwrap(), Vec::<String>::new(), "{said}");
    }
    let node = Node::new(Some(&token), &["--groups", "7"]);
    let said = node.refused();
    assert!(said.contains("the cluster has 64 groups, and the setting groups says 7"), "{said}");
}

#[test]
fn a_token_may_stay_where_it_is_and_a_node_comes_back_with_its_number() {
    let mut nodes = grown(2, &["--groups", "5"]);
    // An opening counts with the first thing that its log syncs: one that ended before would be taken for an old copy.
    until("it has synced something", || nodes[1].server().admin("/readyz").status == 200);
    nodes[1].kill();
    nodes[1].start();
    until("both nodes see each other", || {
        let cluster = nodes[1].server().cluster();
        cluster["number"] == 2 && cluster["nodes"][0]["state"] == "up"
    });
    assert_eq!(nodes[0].server().cluster()["nodes"].as_array().unwrap().len(), 2);
}

#[test]
fn nodes_that_are_restarted_one_after_the_other_cost_no_write() {
    let mut nodes = grown(3, &[]);
    let mut client = nodes[0].server().connect();
    for stream in 0..8 {
        client.put(&format!("/s{stream}"), TEXT).is(201);
    }
    let is_whole = |node: &Node| until("all is well", || node.server().has_three_voters());
    for restarted in 0..3 {
        nodes.iter().for_each(is_whole);
        let writers =
            [1, 2].map(|step| Writer::start(nodes[(restarted + step) % 3].server().connect(), 8));
        nodes[restarted].stop();
        nodes[restarted].start();
        until("it is ready", || nodes[restarted].server().admin("/readyz").status == 200);
        writers.into_iter().for_each(|writer| assert!(writer.end() > 0));
    }
}
