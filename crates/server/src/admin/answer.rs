//! The answers of the admin server, as values.

use crate::metrics::{DiskRefusal, NodeMetrics, NotReady, Silent};
use ::cluster::NodeNumber;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use node::DiskTrouble;
use serde::Serialize;
use session::HttpDate;

/// An answer before it is sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    status: StatusCode,
    content_type: &'static str,
    body: String,
}

impl Answer {
    /// Alive, or every shard whose loop is stuck.
    pub(super) fn health(node: &NodeMetrics) -> Self {
        let silent = node.silent();
        if silent.is_empty() {
            let body = "alive\n".to_owned();
            return Self { status: StatusCode::OK, content_type: "text/plain", body };
        }
        let status = StatusCode::SERVICE_UNAVAILABLE;
        let reasons = silent.into_iter().map(Reason::silent).collect();
        Self::problem(status, "Not alive", None, reasons)
    }

    /// Ready, or every reason why not.
    pub(super) fn readiness(node: &NodeMetrics) -> Self {
        let reasons = node.not_ready();
        if reasons.is_empty() {
            let body = "ready\n".to_owned();
            return Self { status: StatusCode::OK, content_type: "text/plain", body };
        }
        let status = StatusCode::SERVICE_UNAVAILABLE;
        let reasons = reasons.into_iter().map(Reason::new).collect();
        Self::problem(status, "Not ready", None, reasons)
    }

    /// The cluster as this node sees it.
    pub(super) fn cluster(node: &NodeMetrics) -> Self {
        match node.peers() {
            Some(peers) => Self::json(&peers.status(node.clock().now_monotonic())),
            None => Self::no_node(),
        }
    }

    /// Something as JSON: plain text and numbers.
    pub(super) fn json(what: &impl Serialize) -> Self {
        let body = serde_json::to_string(what).expect("plain text and numbers");
        Self { status: StatusCode::OK, content_type: "application/json", body }
    }

    /// A check has begun.
    pub(super) fn checking(number: u64) -> Self {
        let body = format!("{number}\n");
        Self { status: StatusCode::OK, content_type: "text/plain", body }
    }

    /// There is no cluster.
    pub(super) fn no_node() -> Self {
        let detail = "This server is no node of a cluster, or has not started yet. A server with peer_listen is one.";
        Self::problem(StatusCode::NOT_FOUND, "No node", Some(detail), Vec::new())
    }

    /// A member is what it was to become.
    pub(super) fn changed(number: NodeNumber, state: &str) -> Self {
        let body = format!("node {number} is {state}\n");
        Self { status: StatusCode::OK, content_type: "text/plain", body }
    }

    /// A member stays what it is.
    pub(super) fn not_changed(why: &str) -> Self {
        Self::problem(StatusCode::CONFLICT, "Nothing has changed", Some(why), Vec::new())
    }

    /// What a member is to become makes no sense.
    pub(super) fn unknown_state() -> Self {
        let detail = "A node has a number, and becomes active, draining, leaving or removed: one of these words as the body.";
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        Self::problem(status, "No such state", Some(detail), Vec::new())
    }

    /// The cluster cannot be asked, or has not answered.
    pub(super) fn no_leader() -> Self {
        let detail = "The cluster's own group has no leader now, or has not answered in time. Call again: a change that was \
                      made already is made once.";
        Self::problem(StatusCode::SERVICE_UNAVAILABLE, "No leader", Some(detail), Vec::new())
    }

    /// Nobody knows that the caller may.
    pub(super) fn unproven(why: &str) -> Self {
        Self::problem(StatusCode::UNAUTHORIZED, "Not allowed", Some(why), Vec::new())
    }

    /// It may be a web page of somebody else.
    pub(super) fn foreign_host() -> Self {
        let detail =
            "The call is for another host. Call this machine by its address or as localhost.";
        Self::problem(StatusCode::MISDIRECTED_REQUEST, "Not this host", Some(detail), Vec::new())
    }

    /// The clock will be believed.
    pub(super) fn confirmed() -> Self {
        let body = "the clock is confirmed\n".to_owned();
        Self { status: StatusCode::OK, content_type: "text/plain", body }
    }

    /// What was read again is in force.
    pub(super) fn reloaded() -> Self {
        let body = "reloaded\n".to_owned();
        Self { status: StatusCode::OK, content_type: "text/plain", body }
    }

    /// What was read again is wrong; the old one is in force.
    pub(super) fn not_reloaded(why: String) -> Self {
        let body = format!("nothing has changed: {why}\n");
        Self { status: StatusCode::UNPROCESSABLE_ENTITY, content_type: "text/plain", body }
    }

    /// Nobody can do it now.
    pub(super) fn busy() -> Self {
        let body = "not now: the server starts, stops or is at it already\n".to_owned();
        Self { status: StatusCode::SERVICE_UNAVAILABLE, content_type: "text/plain", body }
    }

    /// The path is none of ours.
    pub(super) fn unknown() -> Self {
        let detail = "The admin server has /healthz, /readyz, /metrics, /cluster, /cluster/nodes/N/state, /cluster/check, /cluster/checks/N, /clock/confirm and /reload.";
        Self::problem(StatusCode::NOT_FOUND, "Not found", Some(detail), Vec::new())
    }

    /// The method is none of ours.
    pub(super) fn read_only() -> Self {
        let status = StatusCode::METHOD_NOT_ALLOWED;
        let detail = "Four paths take a PUT: /clock/confirm, /reload, /cluster/check and /cluster/nodes/N/state. For all others use GET or HEAD.";
        Self::problem(status, "Method not allowed", Some(detail), Vec::new())
    }

    fn problem(
        status: StatusCode,
        title: &'static str,
        detail: Option<&str>,
        reasons: Vec<Reason>,
    ) -> Self {
        let problem = Problem { title, status: status.as_u16(), detail, reasons };
        let body = serde_json::to_string(&problem).expect("a problem is plain text and numbers");
        Self { status, content_type: "application/problem+json", body }
    }

    /// Counters in OpenMetrics text.
    pub(super) fn metrics(body: String) -> Self {
        let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        Self { status: StatusCode::OK, content_type, body }
    }
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        let headers =
            [(header::CONTENT_TYPE, self.content_type), (header::CACHE_CONTROL, "no-store")];
        let mut response = (self.status, headers, self.body).into_response();
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            let scheme = header::HeaderValue::from_static("Thalweg");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}

/// RFC 9457, with our list of reasons.
#[derive(Serialize)]
struct Problem<'a> {
    title: &'static str,
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reasons: Vec<Reason>,
}

/// One reason: a code that never changes, for machines, and what it means and asks for, for people.
#[derive(Serialize)]
struct Reason {
    #[serde(skip_serializing_if = "Option::is_none")]
    shard: Option<usize>,
    reason: &'static str,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl Reason {
    fn silent(silent: Silent) -> Self {
        let since = HttpDate::new(silent.since);
        let detail = format!(
            "The loop of this shard has not run for {} s, since {}. Its clients get no answers. \
             Restart the server if the disk does not answer or the loop is stuck.",
            silent.for_ms / 1000,
            String::from_utf8_lossy(since.as_bytes()),
        );
        Self { shard: Some(silent.shard), reason: "silent", detail, error: None }
    }

    fn new((shard, reason): (Option<usize>, NotReady)) -> Self {
        let (reason, detail, error) = match reason {
            NotReady::Recovering => ("recovering", RECOVERING, None),
            NotReady::CatchingUp(groups) => {
                let groups = format!("{groups} groups");
                ("catching_up", CATCHING_UP, Some(groups))
            }
            NotReady::Poisoned(DiskRefusal { trouble, error }) => {
                let (reason, detail) = match trouble {
                    DiskTrouble::Full => ("poisoned_by_full_disk", POISONED_BY_FULL_DISK),
                    DiskTrouble::QuotaUsedUp => ("poisoned_by_quota", POISONED_BY_QUOTA),
                    DiskTrouble::NoDescriptors | DiskTrouble::Failing => ("poisoned", POISONED),
                };
                (reason, detail, Some(error))
            }
            NotReady::Disk(DiskRefusal { trouble, error }) => {
                let (reason, detail) = match trouble {
                    DiskTrouble::Full => ("disk_full", DISK_FULL),
                    DiskTrouble::QuotaUsedUp => ("disk_quota_used_up", QUOTA_USED_UP),
                    DiskTrouble::NoDescriptors => ("out_of_descriptors", OUT_OF_DESCRIPTORS),
                    DiskTrouble::Failing => ("disk_failing", DISK_FAILING),
                };
                (reason, detail, Some(error))
            }
            NotReady::ShuttingDown => ("shutting_down", SHUTTING_DOWN, None),
        };
        Self { shard, reason, detail: detail.to_owned(), error }
    }
}

const RECOVERING: &str =
    "The shard reads its checkpoints and its write-ahead log. It takes requests when it is done.";

const CATCHING_UP: &str = "Groups of this shard have not applied yet what was committed when the node started, or know no leader. Wait. \
    If it lasts, look at `thalweg cluster status`: a majority of their voters may be away.";

const POISONED: &str = "A write or sync of the write-ahead log failed, or a start could not sync its directories. So the shard \
    cannot know what is durable. It serves reads and refuses writes until the server is restarted. Look at the disk first.";

const POISONED_BY_FULL_DISK: &str = "A write of the write-ahead log found no space, although its room is reserved. So the \
    shard cannot know what is durable. It serves reads and refuses writes until the server is restarted. A thin volume or \
    a file system that copies on write may be full: add space first.";

const POISONED_BY_QUOTA: &str = "A write of the write-ahead log exceeded a quota, although its room is reserved. So the \
    shard cannot know what is durable. It serves reads and refuses writes until the server is restarted. Raise the quota \
    first.";

const DISK_FULL: &str = "The disk has no space for new data. The shard serves reads and refuses appends until there \
    is space: add some, or delete streams.";

const QUOTA_USED_UP: &str = "The quota of the server's user or project is used up, whatever the disk has free. The \
    shard serves reads and refuses appends until there is room: raise the quota, or delete streams.";

const OUT_OF_DESCRIPTORS: &str = "The process or the system can open no more files. The shard tries again and serves \
    reads; it refuses appends when its write-ahead log is full. Raise the limit (ulimit -n, LimitNOFILE) and restart.";

const DISK_FAILING: &str = "Work on the disk fails, and not for want of space. The shard tries again and serves \
    reads; it refuses appends when its write-ahead log is full. Look at the disk.";

const SHUTTING_DOWN: &str = "The server is shutting down. Send requests elsewhere.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::SILENT_MS_MAX;
    use crate::metrics::tests::{ManualClock, metrics_of};
    use std::sync::Arc;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn a_shard_that_does_not_run_is_named_with_the_time() {
        let clock = Arc::new(ManualClock::default());
        let node = NodeMetrics::new(2, clock.clone());
        node.set_recovered();
        assert_eq!(Answer::health(&node).status, StatusCode::OK);
        clock.0.store(SILENT_MS_MAX + 13_000, Relaxed);
        node.shards()[0].note_alive(node.clock().now_monotonic());
        let answer = Answer::health(&node);
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
        let said = "\"reasons\":[{\"shard\":1,\"reason\":\"silent\",\"detail\":\"The loop of this shard \
                    has not run for 73 s, since Tue, 14 Nov 2023 22:13:20 GMT.";
        assert!(answer.body.contains(said), "{}", answer.body);
    }

    #[test]
    fn a_recovered_server_is_ready() {
        let node = metrics_of(1);
        node.set_recovered();
        let answer = Answer::readiness(&node);
        assert_eq!(answer.status, StatusCode::OK);
        assert_eq!(answer.body, "ready\n");
    }

    #[test]
    fn every_reason_is_named_with_its_shard() {
        let node = metrics_of(8);
        node.shards()[1].set_recovered();
        let poisoned = [
            (1, DiskTrouble::Failing, "EIO on \"wal\""),
            (6, DiskTrouble::Full, "ENOSPC"),
            (7, DiskTrouble::QuotaUsedUp, "EDQUOT"),
        ];
        for (shard, trouble, error) in poisoned {
            node.shards()[shard].set_recovered();
            node.shards()[shard].set_poisoned(trouble, error);
        }
        node.shards()[2].set_recovered();
        let refuses = |shard: usize, trouble, error: &str| {
            let refusal = DiskRefusal { trouble, error: error.to_owned() };
            node.shards()[shard].set_recovered();
            node.shards()[shard].set_disk_refusal(Some(refusal));
        };
        refuses(2, DiskTrouble::Full, "7 are free");
        refuses(3, DiskTrouble::Failing, "EIO");
        refuses(4, DiskTrouble::NoDescriptors, "EMFILE");
        refuses(5, DiskTrouble::QuotaUsedUp, "EDQUOT");
        node.shards()[0].catching_up.set(3);
        node.set_shutting_down();
        let answer = Answer::readiness(&node);
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(answer.content_type, "application/problem+json");
        let problem: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
        let told = |at: usize| {
            let reason = &problem["reasons"][at];
            assert!(reason["detail"].as_str().unwrap().ends_with('.'));
            let text = |key: &str| reason[key].as_str().unwrap_or_default().to_owned();
            (reason["shard"].as_u64(), text("reason"), text("error"))
        };
        let is = |shard, reason: &str, error: &str| (shard, reason.to_owned(), error.to_owned());
        assert_eq!(told(0), is(None, "shutting_down", ""));
        assert_eq!(told(1), is(Some(0), "recovering", ""));
        assert_eq!(told(2), is(Some(0), "catching_up", "3 groups"));
        assert_eq!(told(3), is(Some(1), "poisoned", "EIO on \"wal\""));
        assert_eq!(told(4), is(Some(2), "disk_full", "7 are free"));
        assert_eq!(told(5), is(Some(3), "disk_failing", "EIO"));
        assert_eq!(told(6), is(Some(4), "out_of_descriptors", "EMFILE"));
        assert_eq!(told(7), is(Some(5), "disk_quota_used_up", "EDQUOT"));
        assert_eq!(told(8), is(Some(6), "poisoned_by_full_disk", "ENOSPC"));
        assert_eq!(told(9), is(Some(7), "poisoned_by_quota", "EDQUOT"));
    }

    #[test]
    fn an_answer_that_is_not_ready_says_when_to_ask_again() {
        let response = Answer::readiness(&metrics_of(1)).into_response();
        assert_eq!(response.headers()[header::RETRY_AFTER], "1");
        assert_eq!(response.headers()[header::CACHE_CONTROL], "no-store");
    }
}
