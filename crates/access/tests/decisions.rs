//! Decisions: every kind of credential, and a naive evaluator beside the real one.

mod support;

use model::Timestamp;
use proptest::prelude::*;
use support::{Ask, NOW_S, access, ask, at_s, client, may, now, rules, token};
use thalweg_access::{
    Access, Authorized, Client, Cost, Credential, Denied, Grant, Invalid, Limit, Need, Now,
    Operation, Refused, SignedUrl, Verified, sign,
};

fn why(access: &Access, credential: &Credential<'_>, request: Ask) -> Denied {
    ask(access, credential, request, now()).unwrap_err()
}

#[test]
fn a_token_opens_what_its_grants_say() {
    let (secret, table) = token("ci", r#"["create,append logs/ci/", "read logs/"]"#);
    let access = access(&table, "");
    assert!(may(&access, &secret, Operation::Append, "logs/ci/1"));
    assert!(may(&access, &secret, Operation::Read, "logs/web/1"));
    assert!(!may(&access, &secret, Operation::Append, "logs/web/1"));
    assert!(!may(&access, &secret, Operation::Delete, "logs/ci/1"));
    let denied =
        why(&access, &Credential::Bearer(&secret), Ask::new(Operation::Delete, "logs/ci/1"));
    let who = "ci".into();
    assert_eq!(
        denied,
        Denied::Insufficient { operation: Operation::Delete, path: "logs/ci/1".into(), who }
    );
}

#[test]
fn a_fork_needs_both_of_its_streams() {
    let (secret, table) = token("ci", r#"["create new/", "read old/"]"#);
    let access = access(&table, "");
    let fork = |to: &str, from: &str| {
        let request =
            Ask { and: Some((Operation::Read, from.into())), ..Ask::new(Operation::Create, to) };
        ask(&access, &Credential::Bearer(&secret), request, now()).is_ok()
    };
    assert!(fork("new/a", "old/a"));
    assert!(!fork("new/a", "new/b") && !fork("old/a", "old/b") && !fork("new/a", "secret"));
}

#[test]
fn a_wrong_token_is_refused_even_where_anybody_may() {
    let (secret, table) = token("ci", r#"["* **"]"#);
    let access = access(&format!("[anonymous]\ngrants = [\"read public/\"]\n{table}"), "");
    let read = Ask::new(Operation::Read, "public/a");
    assert!(ask(&access, &Credential::None, read.clone(), now()).is_ok());
    let wrong = |credential| why(&access, &credential, read.clone());
    assert_eq!(wrong(Credential::Unknown), Denied::Invalid(Invalid::Scheme));
    assert_eq!(wrong(Credential::Bearer("x")), Denied::Invalid(Invalid::NoToken));
    assert_eq!(wrong(Credential::Bearer(&secret[..20])), Denied::Invalid(Invalid::Malformed));
    let (other, _) = token("di", "[]");
    assert_eq!(wrong(Credential::Bearer(&other)), Denied::Invalid(Invalid::Unknown));
    let denied = why(&access, &Credential::None, Ask::new(Operation::Append, "public/a"));
    assert_eq!(denied, Denied::Missing { operation: Operation::Append, path: "public/a".into() });
}

#[test]
fn a_token_ends_at_its_time() {
    let (secret, table) = token("ci", r#"["read **"]"#);
    let access = access(&format!("{table}expires = 2027-01-15T08:00:00Z\n"), "");
    let at = |seconds| {
        let request = Ask::new(Operation::Read, "a");
        ask(&access, &Credential::Bearer(&secret), request, at_s(seconds)).map(drop)
    };
    assert_eq!(at(NOW_S - 1), Ok(()));
    assert_eq!(at(NOW_S), Err(Denied::Expired { at: Timestamp::new(NOW_S * 1000) }));
}

#[test]
fn a_certificate_is_known_by_the_first_name_that_has_a_rule() {
    let access =
        access("[[certificate]]\nsan = \"worker.internal\"\ngrants = [\"append jobs/\"]\n", "");
    let with = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let client = Client { names: &names, ..client() };
        let who = access.authenticate(
            &mut Verified::default(),
            &mut None,
            &Credential::None,
            client,
            now().wall,
        );
        access.decide(who.unwrap(), client, Ask::new(Operation::Append, "jobs/1"), now()).map(drop)
    };
    assert_eq!(with(&["other", "worker.internal"]), Ok(()));
    assert!(matches!(with(&["other", "worker.internal.evil"]), Err(Denied::Missing { .. })));
}

#[test]
fn a_signed_url_opens_no_more_than_its_key_may() {
    let file = "[[signing_key]]\nid = \"web\"\nsecret_file = \"secret\"\ngrants = [\"read chat/\"]\nlifetime_s_max = 60\n";
    let access = access(file, "");
    let get = |path: &str, expires: u64, operation| {
        let (signature, expires) = (sign(&[9; 32], path, expires), expires.to_string());
        let url =
            SignedUrl { path, prefix: None, key: "web", expires: &expires, signature: &signature };
        ask(&access, &Credential::Signed(url), Ask::new(operation, path), now()).map(drop)
    };
    assert_eq!(get("chat/1", NOW_S + 60, Operation::Read), Ok(()));
    assert!(matches!(
        get("chat/1", NOW_S + 60, Operation::Append),
        Err(Denied::Insufficient { .. })
    ));
    assert!(matches!(get("other", NOW_S + 60, Operation::Read), Err(Denied::Insufficient { .. })));
    assert_eq!(
        get("chat/1", NOW_S + 61, Operation::Read),
        Err(Denied::Invalid(Invalid::UrlLifetime)),
        "too long"
    );
    assert_eq!(get("chat/1", NOW_S, Operation::Read), Err(Denied::Expired { at: now().wall }));
}

#[test]
fn open_rules_let_everybody_do_everything() {
    let open = Access::open(None);
    assert!(open.is_open() && open.may_anyone_read("a"));
    assert!(ask(&open, &Credential::None, Ask::new(Operation::Delete, "a"), now()).is_ok());
    let closed = access("", "");
    assert!(!closed.is_open() && !closed.may_anyone_read("a"));
    assert!(ask(&closed, &Credential::None, Ask::new(Operation::Read, "a"), now()).is_err());
}

fn again(access: &Access, authorized: &mut Authorized<Ask>) -> Result<(), Refused> {
    let need: for<'r> fn(&'r Ask) -> Need<'r> =
        |ask| Need { operation: ask.operation, path: &ask.path };
    access.decide_again(authorized, need, &mut Verified::default(), client(), now().wall)
}

#[test]
fn new_rules_judge_what_lasts_again() {
    let (secret, table) = token("ci", r#"["read **"]"#);
    let before = access(&table, "");
    let request = Ask::new(Operation::Read, "a");
    let mut read = ask(&before, &Credential::Bearer(&secret), request.clone(), now()).unwrap();
    let same = Access::new(rules(&table, ""), 7, Some(&before));
    assert_eq!(again(&same, &mut read), Ok(()));
    let less = Access::new(rules(&table.replace("**", "b"), ""), 7, Some(&same));
    assert!(matches!(again(&less, &mut read), Err(Refused::Denied(Denied::Insufficient { .. }))));
    let gone = Access::new(rules("", ""), 7, Some(&same));
    assert_eq!(again(&gone, &mut read), Err(Refused::Denied(Denied::Invalid(Invalid::Unknown))));

    let public = Access::new(rules("[anonymous]\ngrants = [\"read a\"]\n", ""), 7, Some(&gone));
    let mut anonymous = ask(&public, &Credential::None, request, now()).unwrap();
    let closed = Access::new(rules("", ""), 7, Some(&public));
    assert!(matches!(again(&closed, &mut anonymous), Err(Refused::Denied(Denied::Missing { .. }))));
    assert_eq!(again(&Access::open(Some(&closed)), &mut anonymous), Ok(()));
}

#[test]
fn limits_are_of_each_principal_and_outlive_a_reload() {
    let (one, first) = token("one", r#"["* **"]"#);
    let (two, second) = token("two", r#"["* **"]"#);
    let file = format!("{first}limits = {{ requests_per_s = 2 }}\n{second}");
    let before = access(&file, "");
    let get = |access: &Access, secret: &str| {
        ask(access, &Credential::Bearer(secret), Ask::new(Operation::Read, "a"), now()).map(drop)
    };
    assert!(get(&before, &one).is_ok() && get(&before, &one).is_ok());
    let Err(Denied::Limited(exceeded)) = get(&before, &one) else { panic!("two a second") };
    assert_eq!((exceeded.limit, exceeded.retry_after_ms), (Limit::Requests, 500));
    assert!((0..100).all(|_| get(&before, &two).is_ok()));
    let after = Access::new(rules(&file, ""), 7, Some(&before));
    assert!(matches!(get(&after, &one), Err(Denied::Limited(_))), "a reload gives no new share");
    let more = Access::new(rules(&file.replace("= 2", "= 3"), ""), 7, Some(&after));
    assert!(get(&more, &one).is_ok(), "other limits begin afresh");
}

#[test]
fn anonymous_limits_are_of_each_address() {
    let access = access("[anonymous]\ngrants = [\"* **\"]\nlimits = { requests_per_s = 1 }\n", "");
    let from = |address: &str| {
        let client = Client { address: address.parse().unwrap(), is_forwarded: false, names: &[] };
        access
            .decide(thalweg_access::Who::Anonymous, client, Ask::new(Operation::Read, "a"), now())
            .is_ok()
    };
    assert!(from("192.0.2.1") && !from("192.0.2.1") && from("192.0.2.2"));
    assert!(!from("::ffff:192.0.2.1"), "the same address in another form");
    assert!(from("2001:db8::1") && !from("2001:db8::2"), "one network is one client");
    assert!(from("2001:db8:0:1::1"));
}

#[test]
fn live_readers_are_counted_until_they_end() {
    let (secret, table) = token("ci", r#"["read **"]"#);
    let file = format!("{table}limits = {{ live_readers = 1 }}\n");
    let before = access(&file, "");
    let live = || Ask {
        cost: Cost { is_live: true, ..Cost::default() },
        ..Ask::new(Operation::Read, "a")
    };
    let follow = |access: &Access| ask(access, &Credential::Bearer(&secret), live(), now());
    let mut first = follow(&before).unwrap();
    assert!(matches!(follow(&before), Err(Denied::Limited(_))));
    let after = Access::new(rules(&file, ""), 7, Some(&before));
    assert_eq!(again(&after, &mut first), Ok(()));
    assert!(matches!(follow(&after), Err(Denied::Limited(_))), "it is still counted");
    drop(first);
    assert!(follow(&after).is_ok());
}

/// The simplest reading of grants: operations as words, paths as lists of segments.
fn naive(grants: &[String], operation: Operation, path: &str) -> bool {
    let segments: Vec<&str> = path.split('/').collect();
    grants.iter().any(|grant| {
        let (operations, scope) = grant.split_once(' ').unwrap();
        let has = operations.split(',').any(|word| match word {
            "*" => true,
            "write" => matches!(operation, Operation::Append | Operation::Create),
            word => word == operation.name(),
        });
        let wanted: Vec<&str> = scope.split('/').collect();
        let covers = match wanted.split_last() {
            _ if scope == "**" => true,
            Some((&"", prefix)) => {
                segments.len() > prefix.len() && segments[..prefix.len()] == *prefix
            }
            _ => segments == wanted,
        };
        has && covers
    })
}

fn path() -> impl Strategy<Value = String> {
    let segment = prop_oneof![Just("a"), Just("b"), Just("ab"), Just("abc"), Just("ü"), Just("")];
    let path = proptest::collection::vec(segment, 1..4).prop_map(|segments| segments.join("/"));
    path.prop_filter("a path of a stream", |path| !path.is_empty() && !path.starts_with('/'))
}

fn grant() -> impl Strategy<Value = String> {
    const WORDS: [&str; 8] =
        ["read", "list", "append", "create", "delete", "subscribe", "write", "*"];
    let operations =
        proptest::sample::subsequence(&WORDS[..], 1..3).prop_map(|words| words.join(","));
    let scope = prop_oneof![1 => Just("**".to_owned()), 4 => path(), 4 => path().prop_map(|path| path + "/")];
    (operations, scope).prop_map(|(operations, scope)| format!("{operations} {scope}"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn decisions_are_those_of_the_naive_evaluator(
        grants in proptest::collection::vec(grant(), 0..4),
        path in path(),
        place in 0..6_usize,
    ) {
        let operation = Operation::ALL[place];
        let quoted: Vec<String> = grants.iter().map(|grant| format!("{grant:?}")).collect();
        let (secret, table) = token("t", &format!("[{}]", quoted.join(",")));
        let access = access(&table, "");
        let expected = naive(&grants, operation, &path);
        prop_assert_eq!(may(&access, &secret, operation, &path), expected);
        for grant in &grants {
            let parsed = Grant::parse(grant).unwrap();
            prop_assert_eq!(&Grant::parse(&parsed.to_string()).unwrap(), &parsed);
        }
    }
}

/// `Now` is made by hand in one test: both of its clocks are used.
#[test]
fn rates_follow_the_monotonic_clock() {
    let (secret, table) = token("ci", r#"["* **"]"#);
    let access = access(&format!("{table}limits = {{ requests_per_s = 1 }}\n"), "");
    let at = |now: Now| {
        ask(&access, &Credential::Bearer(&secret), Ask::new(Operation::Read, "a"), now).is_ok()
    };
    assert!(at(now()));
    assert!(!at(Now { wall: at_s(NOW_S + 100).wall, ..now() }));
    assert!(at(Now { monotonic: at_s(NOW_S + 1).monotonic, ..now() }));
}
