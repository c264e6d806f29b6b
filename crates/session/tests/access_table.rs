//! Every route, with every kind of credential: what is answered, and that a denial is the same whatever exists.

use crate::support::rules::{bearer, reload, table};
use crate::support::{Shard, TEXT, put, request};
use access::{Access, file, sign};
use std::sync::Arc;

/// What a route needs.
#[derive(Clone, Copy, PartialEq)]
enum Needs {
    Read,
    Create,
    Append,
    Delete,
    /// `create` on the path, and `read` on `a/source`.
    Fork,
    Nothing,
}

struct Route {
    name: &'static str,
    method: &'static str,
    query: &'static str,
    fields: &'static str,
    body: &'static [u8],
    needs: Needs,
    /// The status of one who may, for a stream that is there.
    done: &'static str,
}

const PRODUCER: &str =
    "Content-Type: text/plain\r\nProducer-Id: p\r\nProducer-Epoch: 0\r\nProducer-Seq: 0\r\n";

const fn route(
    name: &'static str,
    method: &'static str,
    needs: Needs,
    done: &'static str,
) -> Route {
    Route { name, method, query: "", fields: "", body: b"", needs, done }
}

const ROUTES: [Route; 13] = [
    route("preflight", "OPTIONS", Needs::Nothing, "204"),
    route("head", "HEAD", Needs::Read, "200"),
    route("read", "GET", Needs::Read, "200"),
    Route { query: "offset=now", ..route("read from now", "GET", Needs::Read, "200") },
    Route { query: "offset=-1&live=long-poll", ..route("long-poll", "GET", Needs::Read, "200") },
    Route { query: "offset=-1&live=sse", ..route("events", "GET", Needs::Read, "200") },
    Route { fields: "If-None-Match: *\r\n", ..route("read again", "GET", Needs::Read, "304") },
    Route { fields: TEXT, body: b"new", ..route("create", "PUT", Needs::Create, "200") },
    Route {
        fields: "Stream-Forked-From: /v1/stream/a/source\r\n",
        ..route("fork", "PUT", Needs::Fork, "409")
    },
    Route { fields: TEXT, body: b"data", ..route("append", "POST", Needs::Append, "204") },
    Route { fields: PRODUCER, body: b"data", ..route("produce", "POST", Needs::Append, "200") },
    Route { fields: "Stream-Closed: true\r\n", ..route("close", "POST", Needs::Append, "204") },
    route("delete", "DELETE", Needs::Delete, "204"),
];

/// What is shown, and what one who may not is answered.
struct Credential {
    name: &'static str,
    fields: fn() -> String,
    /// For a path.
    query: fn(&str) -> String,
    /// Operations on `a/` that it gives.
    gives: &'static [Needs],
    denied: &'static str,
}

/// When what ends in the rules ends, in seconds; the tests are at 30.
const ENDS_S: u64 = 20;
const NOW_S: u64 = 30;
const KEY: &[u8] = &[9; 32];

fn nothing() -> String {
    String::new()
}

fn signed(path: &str, expires_s: u64) -> String {
    let prefix = if path.ends_with('/') { format!("prefix={path}&") } else { nothing() };
    format!("{prefix}expires={expires_s}&key=web&signature={}", sign(KEY, path, expires_s))
}

const fn by_field(
    name: &'static str,
    fields: fn() -> String,
    gives: &'static [Needs],
    denied: &'static str,
) -> Credential {
    Credential { name, fields, query: |_| nothing(), gives, denied }
}

const fn by_query(
    name: &'static str,
    query: fn(&str) -> String,
    gives: &'static [Needs],
    denied: &'static str,
) -> Credential {
    Credential { name, fields: nothing, query, gives, denied }
}

const ALL: &[Needs] = &[Needs::Read, Needs::Create, Needs::Append, Needs::Delete, Needs::Fork];

const CREDENTIALS: [Credential; 17] = [
    by_field("none", nothing, &[], "401 token-missing"),
    by_field(
        "another scheme",
        || "Authorization: Basic eDp5\r\n".to_owned(),
        &[],
        "401 token-invalid",
    ),
    by_field(
        "half a token",
        || "Authorization: Bearer thw_all_\r\n".to_owned(),
        &[],
        "401 token-invalid",
    ),
    by_field(
        "no token of ours",
        || "Authorization: Bearer e30.e30.\r\n".to_owned(),
        &[],
        "401 token-invalid",
    ),
    by_field("two tokens", || bearer("all") + &bearer("all"), &[], "401 token-invalid"),
    by_field("unknown", || bearer("nobody"), &[], "401 token-invalid"),
    by_field("expired", || bearer("late"), &[], "401 token-expired"),
    by_field("another prefix", || bearer("beside"), &[], "403 access-denied"),
    by_field("a prefix of the name", || bearer("half"), &[], "403 access-denied"),
    by_field("reads", || bearer("reads"), &[Needs::Read], "403 access-denied"),
    by_field("writes", || bearer("writes"), &[Needs::Create, Needs::Append], "403 access-denied"),
    by_field("all", || bearer("all"), ALL, ""),
    by_query("signed", |path| signed(path, 60), &[Needs::Read], "403 access-denied"),
    by_query("signed prefix", |_| signed("a/", 60), &[Needs::Read], "403 access-denied"),
    by_query("signed, ended", |_| signed("a/", ENDS_S), &[], "401 token-expired"),
    by_query("signed for another path", |_| signed("a/other", 60), &[], "401 token-invalid"),
    by_query("signed for long", |_| signed("a/", 100_000), &[], "401 token-invalid"),
];

fn shard() -> Shard {
    let file = [
        table("all", r#"["* a/"]"#, ""),
        table("late", r#"["* a/"]"#, &format!("expires = 1970-01-01T00:00:{ENDS_S}Z")),
        table("beside", r#"["* b/"]"#, ""),
        table("half", r#"["* a/the", "* a/go"]"#, ""),
        table("reads", r#"["read a/"]"#, ""),
        table("writes", r#"["write a/"]"#, ""),
        "[[signing_key]]\nid = \"web\"\nsecret_file = \"web.key\"\ngrants = [\"* a/\"]\n"
            .to_owned(),
    ];
    let rules = file::parse(&file.concat(), &|_, _| Ok(KEY.to_vec())).unwrap();
    let mut shard = Shard::open();
    shard.once(&put("a/there", b"first"));
    shard.once(&put("a/source", b"first"));
    shard.pass_ms(NOW_S * 1000 - 1000);
    reload(&mut shard, &Arc::new(Access::new(rules, 7, None)));
    shard.log.clear();
    shard
}

fn ask(shard: &mut Shard, route: &Route, path: &str, credential: &Credential) -> String {
    let query = [route.query.to_owned(), (credential.query)(path)].join("&");
    let fields = route.fields.to_owned() + &(credential.fields)();
    shard.once(&request(route.method, &format!("{path}?{query}"), &fields, route.body))
}

fn may(route: &Route, credential: &Credential) -> bool {
    match route.needs {
        Needs::Nothing => true,
        // A signature is for GET and HEAD alone.
        needs => credential.gives.contains(&needs),
    }
}

/// The status, with the code of a problem.
fn summary(answer: &str) -> String {
    let status = &answer["HTTP/1.1 ".len()..][..3];
    let code = answer.split_once("\"code\":\"").and_then(|(_, rest)| rest.split('"').next());
    code.map_or_else(|| status.to_owned(), |code| format!("{status} {code}"))
}

fn without_date(answer: &str) -> String {
    answer.lines().filter(|line| !line.starts_with("Date:")).collect()
}

#[test]
fn every_route_answers_every_kind_of_credential_by_the_table() {
    let mut untouched = shard();
    for route in &ROUTES {
        for credential in &CREDENTIALS {
            let title = format!("{} with {}", route.name, credential.name);
            if may(route, credential) {
                let answer = ask(&mut shard(), route, "a/there", credential);
                assert_eq!(summary(&answer)[..3], *route.done, "{title}: {answer}");
                continue;
            }
            let answer = ask(&mut untouched, route, "a/there", credential);
            let is_producer = route.name == "produce" && credential.denied.starts_with("403");
            let denied = if is_producer { "401 producer-denied" } else { credential.denied };
            // A HEAD has no body to say the code in.
            let shown = if route.method == "HEAD" { &denied[..3] } else { denied };
            assert_eq!(summary(&answer), shown, "{title}");
            assert!(answer.contains("\r\nWWW-Authenticate: Bearer realm=\"thalweg\""), "{title}");
            assert!(answer.contains("\r\nCache-Control: no-store\r\n"), "{title}: {answer}");
            assert!(answer.contains("\r\nAccess-Control-Allow-Origin: *\r\n"), "{title}: {answer}");
            assert!(untouched.log.is_empty(), "{title} asked {:?}", untouched.log);
        }
    }
}

#[test]
fn no_denial_depends_on_what_exists() {
    let mut shard = shard();
    for route in &ROUTES {
        for credential in CREDENTIALS.iter().filter(|credential| !may(route, credential)) {
            let there = without_date(&ask(&mut shard, route, "a/there", credential));
            let gone = without_date(&ask(&mut shard, route, "a/gone!", credential));
            assert_eq!(
                there.replace("a/there", "a/gone!"),
                gone,
                "{} with {}",
                route.name,
                credential.name
            );
        }
    }
    assert!(shard.log.is_empty());
}
