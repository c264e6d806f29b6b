//! What a start does with the files of a node.

use super::*;
use crate::settings::{self, Environment, Flags};
use env::{RealDisk, SeededRandom};
use std::path::Path;

fn settings(dir: &Path, given: &[(&'static str, &str)]) -> Settings {
    let mut values: std::collections::BTreeMap<_, _> =
        given.iter().map(|(key, text)| (*key, (*text).to_owned())).collect();
    values.insert("data_dir", dir.display().to_string());
    let flags = Flags { config: None, values };
    settings::load(&flags, &Environment::default(), &|_| unreachable!()).unwrap().settings
}

const LISTEN: (&str, &str) = ("peer_listen", "127.0.0.1:4439");

/// The id of the directories that are made here, and of their clusters.
fn own_id() -> u64 {
    SeededRandom::new(1).next_u64()
}

fn report(epoch: u64) -> RecoveryReport {
    RecoveryReport { store: own_id(), lineage: own_id(), epoch, ..RecoveryReport::default() }
}

fn start(
    dir: &Path,
    given: &[(&'static str, &str)],
    report: &RecoveryReport,
) -> Result<Option<Arc<Peers>>, ClusterError> {
    let settings = settings(dir, given);
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let mut random = SeededRandom::new(1);
    let found = find(&settings, &disk, &mut random)?;
    begin(&settings, (disk, found), report, &mut random)
}

fn secret_in(file: &Path) -> String {
    String::from_utf8(env::read_operator_file(file, 100).unwrap().bytes).unwrap()
}

fn names(dir: &Path) -> Vec<String> {
    RealDisk.list(dir).unwrap()
}

#[test]
fn a_server_without_peers_leaves_its_directory_alone() {
    let dir = tempfile::tempdir().unwrap();
    assert!(start(dir.path(), &[], &report(1)).unwrap().is_none());
    assert_eq!(names(dir.path()), Vec::<String>::new());
}

#[test]
fn the_first_start_makes_a_secret_that_stays_and_the_token_has_it() {
    let dir = tempfile::tempdir().unwrap();
    assert!(start(dir.path(), &[LISTEN], &report(1)).unwrap().is_some());
    let made = ["CLUSTER", "CLUSTER.copy", "FORMAT", "FORMAT.copy", "LOCK", "cluster.secret"];
    assert_eq!(names(dir.path()), made);
    let file = dir.path().join("cluster.secret");
    let read = env::read_operator_file(&file, 100).unwrap();
    assert_eq!((read.mode, read.bytes.len()), (0o600, 65));
    let secret = secret_in(&file);
    let tokens = || {
        let settings = settings(dir.path(), &[]);
        token(&settings).unwrap()
    };
    let expected = format!("thalweg1:{:016x}:{}@127.0.0.1:4439\n", own_id(), secret.trim());
    assert_eq!(tokens(), expected);
    let _ = start(dir.path(), &[LISTEN, ("advertise", "n1.example:9")], &report(2)).unwrap();
    assert_eq!(tokens(), expected.replace("127.0.0.1:4439", "n1.example:9"));
}

#[test]
fn a_secret_that_others_can_read_or_that_is_none_is_refused_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let _ = start(dir.path(), &[LISTEN], &report(1)).unwrap();
    let file = dir.path().join("cluster.secret");
    env::replace_operator_file(&file, secret_in(&file).as_bytes(), 0o604).unwrap();
    let said = start(dir.path(), &[LISTEN], &report(2)).unwrap_err().to_string();
    assert!(said.contains("chmod o=") && said.contains("0604"), "{said}");
    env::replace_operator_file(&file, b"not a secret", 0o600).unwrap();
    let said = start(dir.path(), &[LISTEN], &report(2)).unwrap_err().to_string();
    assert!(said.contains("64 hexadecimal digits") && !said.contains("not a secret"), "{said}");
}

/// Puts a second member into what the directory says.
fn add_member(dir: &Path) {
    let mut membership = read_membership(&RealDisk, dir).unwrap().unwrap().membership;
    let second = Member { store: 8, ..membership.own().clone() };
    membership.members.insert(cluster::NodeNumber::new(2), second);
    replace_membership(&RealDisk, dir, &mut membership).unwrap();
}

#[test]
fn the_directory_of_a_member_is_not_served_as_a_cluster_of_one() {
    let dir = tempfile::tempdir().unwrap();
    let _ = start(dir.path(), &[LISTEN], &report(1)).unwrap();
    assert!(start(dir.path(), &[], &report(2)).unwrap().is_none(), "it has no other member");
    add_member(dir.path());
    let said = start(dir.path(), &[], &report(3)).unwrap_err().to_string();
    assert!(said.contains("node 1 of 2") && said.contains("peer_listen"), "{said}");
    let peers = start(dir.path(), &[LISTEN], &report(4)).unwrap().unwrap();
    assert_eq!(peers.others(), [cluster::NodeNumber::new(2)]);
    RealDisk.remove(&dir.path().join("cluster.secret")).unwrap();
    let said = start(dir.path(), &[LISTEN], &report(5)).unwrap_err().to_string();
    assert!(said.contains("copy it from another node"), "{said}");
}

#[test]
fn an_old_log_beside_a_newer_membership_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let _ = start(dir.path(), &[LISTEN], &report(5)).unwrap();
    add_member(dir.path());
    assert!(start(dir.path(), &[LISTEN], &report(6)).is_ok());
    for epoch in [5, 6] {
        let refused = start(dir.path(), &[LISTEN], &report(epoch)).unwrap_err();
        assert!(matches!(refused, ClusterError::OldLog { seen: 6, .. }), "{refused}");
    }
    let other = RecoveryReport { store: 9, lineage: 9, ..report(9) };
    let refused = start(dir.path(), &[LISTEN], &other).unwrap_err();
    assert!(matches!(refused, ClusterError::OtherDirectory), "{refused}");
}

#[test]
fn an_address_that_nobody_can_dial_is_refused_unless_another_one_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let everywhere = ("peer_listen", "0.0.0.0:4439");
    let said = start(dir.path(), &[everywhere], &report(1)).unwrap_err().to_string();
    assert!(said.contains("advertise"), "{said}");
    assert_eq!(names(dir.path()), Vec::<String>::new(), "a refusal writes nothing");
    assert!(start(dir.path(), &[everywhere, ("advertise", "n1:4439")], &report(1)).is_ok());
}

#[test]
fn a_token_says_what_it_was_made_of_and_anything_else_is_refused_without_being_shown() {
    let secret = cluster::Secret::new([0xa5; 32]);
    let text = secret::token(0xc1, &secret, "n1.example:4439");
    let token = secret::parse_token(&text).unwrap();
    assert_eq!((token.cluster, token.address), (0xc1, "n1.example:4439".to_owned()));
    assert_eq!(token.secret.bytes(), secret.bytes());
    for wrong in
        ["", "thalweg1:", "thalweg2:x", &text[..40], &text[1..], &text.replace(":4439", "")]
    {
        let said = secret::parse_token(wrong).unwrap_err().to_string();
        assert!(said.contains("thalweg cluster token") && !said.contains("a5a5"), "{said}");
    }
}

#[test]
fn a_member_learns_of_others_and_forgets_none() {
    let dir = tempfile::tempdir().unwrap();
    let peers = start(dir.path(), &[LISTEN], &report(1)).unwrap().unwrap();
    let mut meta = cluster::Meta::new(own_id(), 64);
    let own = read_membership(&RealDisk, dir.path()).unwrap().unwrap().membership.own().clone();
    let join = |meta: &mut cluster::Meta, member| meta.apply(&cluster::MetaCommand::Join(member));
    let _ = join(&mut meta, own.clone());
    let old = meta.clone();
    let number = cluster::NodeNumber::new(2);
    let _ = join(&mut meta, Member { store: 8, peer_address: "n2:1".to_owned(), ..own });
    peers.note_meta(&Arc::new(meta.clone()));
    peers.note_joined(number, (model::ShardId::new(1), 5));
    assert!(peers.take_answers().is_empty(), "CLUSTER does not name it yet");
    peers.look();
    let answers = peers.take_answers();
    assert!(matches!(answers[..], [((_, 5), cluster::JoinAnswer::Joined { .. })]), "{answers:?}");
    // What a shard applies again after a start may be old.
    peers.note_meta(&Arc::new(old.clone()));
    peers.look();
    assert_eq!(peers.others(), [number]);
    let read = || read_membership(&RealDisk, dir.path()).unwrap().unwrap().membership;
    assert_eq!(read().members.len(), 2);
    let state = MemberState::Removed;
    let _ = meta.apply(&cluster::MetaCommand::SetState { number, state });
    peers.note_meta(&Arc::new(meta.clone()));
    peers.note_meta(&Arc::new(old.clone()));
    peers.look();
    assert_eq!((peers.others(), read().members[&number].state), (vec![], state));
}
