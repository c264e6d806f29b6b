//! Every setting at either end of its range: the server serves with it, or refuses it in words.

mod harness;

use harness::{Server, Start, TEXT, new_dir};
use std::process::Command;

/// Sizes that let even 256 shards start at once.
const SMALL: [&str; 6] =
    ["--segment-bytes", "1MiB", "--wal-bytes-max", "128MiB", "--seal-bytes", "64KiB"];

/// Key, smallest and largest value of each setting that has a range, as `thalweg config` names them.
fn ranges() -> Vec<(String, [String; 2])> {
    let output = Command::new(env!("CARGO_BIN_EXE_thalweg")).arg("config").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut ranges = Vec::new();
    let mut range = None;
    for line in text.lines() {
        let words: Vec<&str> = line.split([' ', ':', '.', ',']).collect();
        if let Some(at) = words.iter().position(|word| *word == "from")
            && words[1] == "Takes"
        {
            range = Some([words[at + 1].to_owned(), words[at + 3].to_owned()]);
        } else if let Some((key, _)) = line.split_once(" = ")
            && let Some(range) = range.take()
        {
            ranges.push((key.to_owned(), range));
        }
    }
    ranges
}

fn serves(server: &Server) {
    let mut client = server.connect();
    let created = client.put("/s", TEXT).status;
    // At its smallest some limit refuses every write.
    if created == 201 && client.post("/s", TEXT, b"x").status == 204 {
        assert_eq!(client.get("/s").is(200).text(), "x");
    }
}

#[test]
fn either_end_of_every_range_serves_or_is_refused_in_words() {
    let ranges = ranges();
    assert!(ranges.len() >= 18, "{ranges:?}");
    for (key, ends) in ranges {
        for value in ends {
            if key == "groups" && value == "4096" {
                // To make a directory for each takes half a minute.
                continue;
            }
            let flag = format!("--{}", key.replace('_', "-"));
            let mut flags: Vec<&str> =
                SMALL.chunks(2).filter(|pair| pair[0] != flag).flatten().copied().collect();
            flags.extend([flag.as_str(), value.as_str()]);
            let dir = new_dir();
            let output = thalweg_config(&flags);
            match output {
                None => {
                    let server = Start::with(&flags).serve(dir.path());
                    serves(&server);
                    server.terminate();
                    let status = server.wait();
                    assert!(status.success(), "{flag} {value}: {status}");
                }
                Some(said) => assert!(said.contains(&key), "{flag} {value}: {said}"),
            }
        }
    }
}

/// The output if the settings are refused.
fn thalweg_config(flags: &[&str]) -> Option<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    let output = command.arg("config").args(flags).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(matches!(output.status.code(), Some(0 | 2)), "{said}");
    (!output.status.success()).then_some(said)
}
