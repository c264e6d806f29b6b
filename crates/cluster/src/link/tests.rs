use super::*;
use crate::identity::NodeNumber;

fn hello(number: u16) -> Hello {
    Hello {
        versions: (VERSION_MIN, VERSION_MAX),
        cluster: 0xc1,
        store: u64::from(number) + 100,
        number: Some(NodeNumber::new(number)),
        shard: (0, 2),
        group_count: 64,
        epoch: 5,
        features: 0,
        nonce: [number as u8; 16],
        class: Class::Raft,
    }
}

fn secret() -> Secret {
    Secret::new([7; 32])
}

/// What both sides come to, with bytes that arrive `piece` at a time.
fn meet(
    (dialler, dialler_secret): (Hello, Secret),
    acceptor: Hello,
    check: Result<(), Refusal>,
    piece: usize,
) -> (Option<Progress>, Option<Progress>) {
    let (mut out, first) = Dialler::new(dialler, dialler_secret);
    let mut inside = Acceptor::new(acceptor, secret());
    let (mut to_acceptor, mut to_dialler) = (first, Vec::new());
    let (mut seen_out, mut seen_in) = (Vec::new(), Vec::new());
    let (mut ended_out, mut ended_in) = (None, None);
    for _ in 0..2_000 {
        seen_in.extend(to_acceptor.drain(..piece.min(to_acceptor.len())));
        if ended_in.is_none() {
            let step = inside.handle(&seen_in, |_| check);
            seen_in.drain(..step.used);
            to_dialler.extend(step.send);
            ended_in = Some(step.progress).filter(|progress| *progress != Progress::More);
        }
        seen_out.extend(to_dialler.drain(..piece.min(to_dialler.len())));
        if ended_out.is_none() {
            let step = out.handle(&seen_out, |_| Ok(()));
            seen_out.drain(..step.used);
            to_acceptor.extend(step.send);
            ended_out = Some(step.progress).filter(|progress| *progress != Progress::More);
        }
    }
    (ended_out, ended_in)
}

#[test]
fn two_nodes_of_a_cluster_know_each_other_however_the_bytes_arrive() {
    for piece in [1, 7, 96, 1_000] {
        let (out, inside) = meet((hello(1), secret()), hello(2), Ok(()), piece);
        assert_eq!(out, Some(Progress::Up(Box::new(hello(2)))));
        assert_eq!(inside, Some(Progress::Up(Box::new(hello(1)))));
    }
}

/// The dialler is refused, with the same reason that the acceptor has.
fn assert_refused(dialler: (Hello, Secret), check: Result<(), Refusal>, refusal: Refusal) {
    let (out, inside) = meet(dialler, hello(2), check, 50);
    assert_eq!(inside, Some(Progress::Refused(refusal)));
    assert_eq!(out, Some(Progress::Refused(refusal)));
    assert!(refusal.to_string().len() > 20, "{refusal}");
}

#[test]
fn each_refusal_reaches_the_dialler_in_words() {
    let of = |change: fn(&mut Hello)| {
        let mut hello = hello(1);
        change(&mut hello);
        (hello, secret())
    };
    let version = Refusal::Version { theirs: (8, 9) };
    assert_refused(of(|hello| hello.versions = (8, 9)), Ok(()), version);
    let cluster = Refusal::OtherCluster { theirs: 9, ours: 0xc1 };
    assert_refused(of(|hello| hello.cluster = 9), Ok(()), cluster);
    let groups = Refusal::GroupCount { theirs: 8, ours: 64 };
    assert_refused(of(|hello| hello.group_count = 8), Ok(()), groups);
    assert_refused(of(|hello| hello.store = 102), Ok(()), Refusal::Itself);
    let number = NodeNumber::new(1);
    for refusal in [
        Refusal::Removed { number },
        Refusal::OtherStore { number },
        Refusal::OldDisk { theirs: 5, known: 8 },
        Refusal::Unknown { number },
    ] {
        assert_refused(of(|_| ()), Err(refusal), refusal);
    }
}

#[test]
fn whoever_joins_may_have_another_number_of_groups() {
    let joining = Hello { number: None, group_count: 0, ..hello(1) };
    let (out, _) = meet((joining, secret()), hello(2), Ok(()), 500);
    assert!(matches!(out, Some(Progress::Up(_))));
}

#[test]
fn another_secret_is_refused_by_the_dialler_before_it_proves_anything() {
    let (out, inside) = meet((hello(1), Secret::new([8; 32])), hello(2), Ok(()), 500);
    assert_eq!(out, Some(Progress::Refused(Refusal::Secret)));
    assert_eq!(inside, None);
}

#[test]
fn a_dialler_without_the_secret_is_refused_in_words() {
    let mut acceptor = Acceptor::new(hello(2), secret());
    let step = acceptor.handle(&hello(1).encode(), |_| Ok(()));
    assert_eq!(step.progress, Progress::More);
    let step = acceptor.handle(&[0; 32], |_| panic!("a stranger is asked nothing"));
    assert_eq!(step.progress, Progress::Refused(Refusal::Secret));
    let (mut dialler, _) = Dialler::new(hello(1), secret());
    assert_eq!(dialler.handle(&step.send, |_| Ok(())).progress, Progress::Refused(Refusal::Secret));
}

#[test]
fn an_old_proof_is_worth_nothing() {
    let mut first = Acceptor::new(hello(2), secret());
    let sent = first.handle(&hello(1).encode(), |_| Ok(())).send;
    let (mut dialler, _) = Dialler::new(hello(1), secret());
    let proof = dialler.handle(&sent, |_| Ok(())).send;
    assert!(matches!(first.handle(&proof, |_| Ok(())).progress, Progress::Up(_)));
    let another = Hello { nonce: [99; 16], ..hello(2) };
    let mut second = Acceptor::new(another, secret());
    let _ = second.handle(&hello(1).encode(), |_| Ok(()));
    let step = second.handle(&proof, |_| Ok(()));
    assert_eq!(step.progress, Progress::Refused(Refusal::Secret));
}

#[test]
fn a_proof_is_no_proof_of_the_other_side() {
    let mut acceptor = Acceptor::new(hello(2), secret());
    let sent = acceptor.handle(&hello(1).encode(), |_| Ok(())).send;
    let reflected = &sent[HELLO_BYTES..];
    let step = acceptor.handle(reflected, |_| Ok(()));
    assert_eq!(step.progress, Progress::Refused(Refusal::Secret));
}

#[test]
fn strangers_get_no_words() {
    let mut acceptor = Acceptor::new(hello(2), secret());
    let mut bytes = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n".to_vec();
    assert_eq!(acceptor.handle(&bytes, |_| Ok(())).progress, Progress::More);
    bytes.resize(HELLO_BYTES, b'x');
    let step = acceptor.handle(&bytes, |_| Ok(()));
    assert_eq!((step.progress, step.send), (Progress::Refused(Refusal::NotANode), Vec::new()));
}

#[test]
fn a_hello_has_golden_bytes() {
    let bytes = hello(3).encode();
    assert_eq!(bytes[..8], *b"ThPe\x01\x00\x01\x00");
    assert_eq!(
        bytes[8..32],
        [0xc1, 0, 0, 0, 0, 0, 0, 0, 103, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 2, 0, 64, 0]
    );
    assert_eq!(bytes[32..48], [5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes[48..64], [3; 16]);
    assert_eq!(bytes[64..], [0; 32]);
    assert_eq!(Hello::decode(&bytes), Some(hello(3)));
}

#[test]
fn a_secret_is_not_printed() {
    assert_eq!(format!("{:?}", secret()), "Secret(…)");
}

#[test]
fn versions_in_common_are_the_newest_of_both() {
    let of = |versions| Hello { versions, ..hello(1) };
    assert_eq!(of((1, 3)).common_version(&of((2, 5))), Some(3));
    assert_eq!(of((1, 1)).common_version(&of((2, 5))), None);
}
