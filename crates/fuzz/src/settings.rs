//! The settings file: a mistake is an answer, and what is printed can be loaded again.

use server::settings::{Environment, Flags, load, render};
use std::path::PathBuf;

/// Input: the text of a settings file.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let flags = Flags { config: Some(PathBuf::from("a.toml")), ..Flags::default() };
    let nothing = Environment::default();
    match load(&flags, &nothing, &|_| Ok(text.to_owned())) {
        Ok(effective) => {
            let printed = render(&effective);
            let again = load(&flags, &nothing, &|_| Ok(printed.clone()));
            let again = again.expect("what is printed is a settings file");
            assert_eq!(again.settings, effective.settings);
        }
        Err(problems) => {
            assert!(!problems.is_empty());
            assert!(problems.iter().all(|problem| !problem.to_string().is_empty()));
        }
    }
}

/// A file of all settings, and some with mistakes.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let nothing = load(&Flags::default(), &Environment::default(), &|_| Ok(String::new()));
    let all = render(&nothing.expect("the defaults are settings"));
    let bare: String =
        all.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect();
    let texts = [
        bare.as_str(),
        "listen = \"[::1]:0\"\nadmin_listen = \"off\"\nappend_bytes_max = \"1.5GiB\"\n",
        "append_bytes_max = 99999999999999999999\nshards = -1\n",
        "segment_bytes = \"63MiB\"\nwal_bytes_max = \"4MiB\"\ngzip = false\n",
        "data_dir = '''a\nb'''\nlog_format = \"json\" # comment\n",
        "shard = 1\n[groups]\na = 1\n",
        "listen = \"\\u0000\"\nlog_level = 1979-05-27\n",
        "seal_bytes = 1e9\nhead_count_max = 0x10\n",
    ];
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}
