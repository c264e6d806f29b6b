//! What clients show, and the file that says what it is worth: nobody is known for anything else.

use ::access::{Access, Client, Credential, Grant, Secret, StaticToken, Verified, Who, file, sign};
use model::Timestamp;
use protocol::http1::{HeadLimits, HeadReader, HeaderSlots};
use protocol::request::{self, Proof, Shown, Site, Way};
use std::net::{IpAddr, Ipv4Addr};

/// When everything happens.
const NOW_S: u64 = 1_800_000_000;

/// The end of every URL that is signed here.
const END_S: u64 = NOW_S + 600;

const URL_SECRET: [u8; 32] = [9; 32];

/// Signed with 64 bytes of 7, until the year 2096.
const JWT: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.\
eyJpc3MiOiJodHRwczovL2lzc3VlciIsImF1ZCI6InRoYWx3ZWciLCJzdWIiOiJhbm4iLCJleHAiOjQwMDAwMDAwMDB9.\
wikBfzaIBAlgVYd__lsFey9V_IH15-j4Q30LVjoc-0c";

fn token() -> StaticToken<'static> {
    StaticToken { id: "ci", secret: Secret::new([5; 32]) }
}

fn rules_text() -> String {
    let hash = token().secret.hash().render();
    format!(
        "[anonymous]\ngrants = [\"read public/\"]\n\
[[token]]\nid = \"ci\"\nsha256 = \"{hash}\"\ngrants = [\"create,append logs/ci/\", \"read logs/\"]\n\
expires = 2096-01-01T00:00:00Z\nlimits = {{ requests_per_s = 200, append_bytes_per_s = \"8MiB\" }}\n\
[[issuer]]\nissuer = \"https://issuer\"\naudience = \"thalweg\"\nsecret_file = \"hmac\"\n\
algorithms = [\"HS256\"]\ngrants = [\"read,append users/{{sub}}/\"]\n\
[[signing_key]]\nid = \"web\"\nsecret_file = \"web.key\"\ngrants = [\"read chat/\"]\nlifetime_s_max = 86400\n"
    )
}

fn read_file(name: &str, _: file::Secrecy) -> Result<Vec<u8>, String> {
    match name {
        "hmac" => Ok(vec![7; 64]),
        "web.key" => Ok(URL_SECRET.to_vec()),
        _ => Err("is not there".to_owned()),
    }
}

fn client() -> Client<'static> {
    Client { address: IpAddr::V4(Ipv4Addr::LOCALHOST), is_forwarded: false, names: &[] }
}

/// Whether somebody is known by a credential.
fn is_known(access: &Access, credential: &Credential<'_>) -> bool {
    let now = Timestamp::new(NOW_S * 1000);
    let who = access.authenticate(&mut Verified::default(), &mut None, credential, client(), now);
    matches!(who, Ok(Who::Known(_)))
}

/// Input: a token, or the head of a request.
pub fn credential(data: &[u8]) {
    let rules = file::parse(&rules_text(), &read_file).expect("rules without a mistake");
    let access = Access::new(rules, 1, None);
    if let Ok(text) = std::str::from_utf8(data) {
        check_token(&access, text);
    }
    let mut slots = HeaderSlots::new();
    let head = HeadReader::default().read(data, &mut slots, &HeadLimits::default());
    let Ok(Some(head)) = head else { return };
    let public_url = "https://a.example/base".parse().expect("a URL");
    let proxies = vec!["127.0.0.0/8".parse().expect("a network")];
    let site = Site { public_url: Some(public_url), proxies };
    let way = Way { site: &site, ..Way::LOCAL };
    let _ = request::parse(&head.request, &way);
    match Shown::find(&head.request, &way).proof {
        Proof::None | Proof::Unknown => {}
        Proof::Bearer(text) => check_token(&access, text),
        Proof::Signed(query) => {
            // The paths that a signature of this query could be for, whatever the target was.
            for path in ["chat/42", "chat/", "chat/42/more", "secret", "public/a"] {
                let url = ::access::SignedUrl {
                    path,
                    prefix: query.prefix.as_deref(),
                    key: &query.key,
                    expires: &query.expires,
                    signature: &query.signature,
                };
                if is_known(&access, &Credential::Signed(url)) {
                    let signed = query.prefix.as_deref().unwrap_or(path);
                    let expires: u64 = query.expires.parse().expect("seconds");
                    assert_eq!(query.signature, sign(&URL_SECRET, signed, expires), "{path}");
                    assert!(path == signed || path.starts_with(signed), "{path} by {signed}");
                    assert!((NOW_S + 1..=NOW_S + 86_400).contains(&expires), "{expires}");
                }
            }
        }
    }
}

fn check_token(access: &Access, text: &str) {
    if let Some(parsed) = StaticToken::parse(text) {
        assert_eq!(parsed.render(), text, "a token has one spelling");
    }
    if is_known(access, &Credential::Bearer(text)) {
        assert!(text == token().render() || text == JWT, "{text} makes somebody known");
    }
    if let Ok(grant) = Grant::parse(text) {
        assert_eq!(Grant::parse(&grant.to_string()), Ok(grant), "{text}");
    }
}

/// Tokens, a grant, and heads that show them.
#[must_use]
pub fn credential_seeds() -> Vec<Vec<u8>> {
    let token = token().render();
    let head = |query: &str, fields: &str| {
        format!("GET /v1/stream/chat/42{query} HTTP/1.1\r\nHost: a\r\n{fields}\r\n")
    };
    let one = sign(&URL_SECRET, "chat/42", END_S);
    let all = sign(&URL_SECRET, "chat/", END_S);
    let texts = [
        token.clone(),
        JWT.to_owned(),
        "read,append users/a/".to_owned(),
        "* **".to_owned(),
        head("", &format!("Authorization: Bearer {token}\r\n")),
        head("", &format!("authorization: bearer  {JWT}\r\nProducer-Id: p\r\n")),
        head("", "Authorization: Basic YTpi\r\nAuthorization: Bearer x\r\n"),
        head(&format!("?expires={END_S}&key=web&signature={one}"), ""),
        head(&format!("?prefix=chat%2F&expires={END_S}&key=web&signature={all}"), ""),
        head("?key=web&key=web&signature=", "traceparent: 00-0-0-00\r\n"),
    ];
    texts.into_iter().map(String::into_bytes).collect()
}

/// Input: the text of an access file.
pub fn rules(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match file::parse(text, &read_file) {
        Ok(rules) => {
            let access = Access::new(rules, 1, None);
            assert!(!access.is_open(), "rules of a file are looked at");
            for grant in access.anonymous_grants() {
                Grant::parse(&grant).expect("what is granted can be written down");
            }
            let after = Access::open(Some(&access));
            assert!(after.generation() > access.generation(), "rules are counted");
        }
        Err(problems) => {
            let lines = text.lines().count() + 1;
            assert!(!problems.is_empty());
            assert!(problems.iter().all(|problem| (1..=lines).contains(&problem.line)));
        }
    }
}

/// A file of all tables, and some with mistakes.
#[must_use]
pub fn rules_seeds() -> Vec<Vec<u8>> {
    let all = rules_text();
    let texts = [
        all.as_str(),
        "",
        "[anonymous]\ngrants = [\"* **\"]\nlimits = { live_readers = 1 }\n",
        "[[token]]\nid = \"a b\"\nsha256 = \"00\"\ngrants = []\n",
        "[[issuer]]\nissuer = \"i\"\nalgorithms = [\"none\"]\njwks_file = \"x\"\n",
        "[[certificate]]\nsan = \"worker.internal\"\ngrants = [\"write,list,subscribe a/{sub}/b\"]\n",
        "[[signing_key]]\nid = \"web\"\nsecret_file = \"none\"\nlifetime = 5\n",
        "[[tokens]]\n[anonymos]\n",
    ];
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}
