//! Precedence, errors and the round trip through a file.

use super::*;
use std::ffi::OsString;
use std::io;
use std::path::Path;

const FILE: &str = "thalweg.toml";

fn flags(given: &[(&'static str, &str)]) -> Flags {
    let values = given.iter().map(|(key, text)| (*key, (*text).to_owned())).collect();
    Flags { config: None, values }
}

fn environment(given: &[(&str, &str)]) -> Environment {
    Environment::new(given.iter().map(|(name, text)| (OsString::from(name), OsString::from(text))))
}

fn load_with_file(
    mut flags: Flags,
    environment: &Environment,
    text: &str,
) -> Result<Effective, Vec<SettingsError>> {
    flags.config = Some(PathBuf::from(FILE));
    load(&flags, environment, &|path: &Path| {
        assert_eq!(path, Path::new(FILE));
        Ok(text.to_owned())
    })
}

fn load_plain(flags: &Flags, environment: &Environment) -> Result<Effective, Vec<SettingsError>> {
    load(flags, environment, &|_: &Path| Err(io::Error::other("no file was named")))
}

#[test]
fn a_log_that_would_outgrow_a_chunk_is_refused_with_the_range() {
    for size in ["2GiB", "2048MiB"] {
        assert!(load_plain(&flags(&[("wal_bytes_max", size)]), &environment(&[])).is_ok());
    }
    let said = only_problem(load_plain(&flags(&[("wal_bytes_max", "4GiB")]), &environment(&[])));
    assert!(said.contains("wal_bytes_max") && said.contains("a size from 4MiB to 2GiB"), "{said}");
}

#[test]
fn more_segments_than_can_be_counted_are_refused() {
    let given = |shards| flags(&[("segment_bytes", "4MiB"), ("shards", shards)]);
    assert!(load_plain(&given("128"), &environment(&[])).is_ok());
    let said = only_problem(load_plain(&given("129"), &environment(&[])));
    assert!(said.contains("at most 32768 segments") && said.contains("shards = `129`"), "{said}");
    let small = flags(&[("segment_bytes", "2MiB")]);
    let said = only_problem(load_plain(&small, &environment(&[])));
    assert!(said.contains("at most 256 segments") && said.contains("= `2MiB`"), "{said}");
}

fn only_problem(result: Result<Effective, Vec<SettingsError>>) -> String {
    let problems = result.expect_err("the settings hold a mistake");
    assert_eq!(problems.len(), 1, "{problems:?}");
    problems[0].to_string()
}

fn source_of(effective: &Effective, key: &str) -> String {
    let chosen = effective.chosen.iter().find(|chosen| chosen.setting.key == key);
    chosen.expect("a setting of the table").source.to_string()
}

#[test]
fn every_default_is_in_its_own_range() {
    let effective = load_plain(&flags(&[]), &environment(&[])).unwrap();
    assert_eq!(effective.settings.listen[0].address.port(), 4437);
    assert_eq!(effective.settings.append_bytes_max, model::limits::APPEND_BYTES_DEFAULT);
    assert!(effective.chosen.iter().all(|chosen| chosen.source == Source::Default));
    assert!(effective.warnings.is_empty());
}

#[test]
fn a_flag_wins_over_a_variable_over_the_file_over_the_default() {
    let file = "shards = 1\ngroups = 1\ngzip = false\n";
    let variables = environment(&[("THALWEG_SHARDS", "2"), ("THALWEG_GROUPS", "2")]);
    let effective = load_with_file(flags(&[("shards", "3")]), &variables, file).unwrap();
    assert_eq!(effective.settings.shards, 3);
    assert_eq!(source_of(&effective, "shards"), "flag --shards");
    assert_eq!(effective.settings.groups, 2);
    assert_eq!(source_of(&effective, "groups"), "environment variable THALWEG_GROUPS");
    assert!(!effective.settings.gzip);
    assert_eq!(source_of(&effective, "gzip"), "thalweg.toml:3");
    assert_eq!(source_of(&effective, "listen"), "default");
}

#[test]
fn the_file_may_be_named_by_a_variable() {
    let variables = environment(&[("THALWEG_CONFIG", "elsewhere.toml")]);
    let effective = load(&flags(&[]), &variables, &|path: &Path| {
        assert_eq!(path, Path::new("elsewhere.toml"));
        Ok("append_bytes_max = \"1MiB\"".to_owned())
    });
    assert_eq!(effective.unwrap().settings.append_bytes_max, 1 << 20);
}

#[test]
fn a_variable_without_a_name_in_it_names_no_file() {
    let variables = environment(&[("THALWEG_CONFIG", "")]);
    let effective = load(&flags(&[]), &variables, &|path: &Path| panic!("{path:?} was read"));
    assert!(effective.is_ok());
}

#[test]
fn a_misspelt_key_names_its_line_and_the_setting_that_was_meant() {
    let problem = only_problem(load_with_file(
        flags(&[]),
        &environment(&[]),
        "shards = 1\nlong_pol_timeout_ms = 500\n",
    ));
    assert_eq!(
        problem,
        "thalweg.toml:2: there is no setting `long_pol_timeout_ms`\n  \
         did you mean `long_poll_timeout_ms`?"
    );
}

#[test]
fn a_key_like_no_setting_points_at_the_list() {
    let problem = only_problem(load_with_file(flags(&[]), &environment(&[]), "colour = 1"));
    assert!(problem.ends_with("`thalweg config` prints all settings"), "{problem}");
}

#[test]
fn a_bad_value_says_what_where_from_and_what_is_allowed() {
    let problem = only_problem(load_plain(&flags(&[]), &environment(&[("THALWEG_GROUPS", "0")])));
    assert_eq!(
        problem,
        "groups = `0` (environment variable THALWEG_GROUPS) is not a value of this setting\n  \
         allowed: a whole number from 1 to 4096"
    );
}

#[test]
fn an_array_is_a_list_and_no_value_where_one_is_wanted() {
    let file = |text| load_with_file(flags(&[]), &environment(&[]), text);
    let listen =
        file("listen = [\"127.0.0.1:1\", \"https://127.0.0.1:2\"]\ntls_self_signed = true");
    assert_eq!(listen.unwrap().settings.listen.len(), 2);
    let problem = only_problem(file("shards = [1, 2]"));
    assert!(problem.starts_with("shards = `1,2` (thalweg.toml:1)"), "{problem}");
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let wrong = flags(&[("groups", "0"), ("gzip", "maybe"), ("listen", "nowhere")]);
    let problems = load_plain(&wrong, &environment(&[])).unwrap_err();
    assert_eq!(problems.len(), 3, "{problems:?}");
}

#[test]
fn a_file_that_is_not_toml_names_the_line() {
    let problem =
        only_problem(load_with_file(flags(&[]), &environment(&[]), "shards = 1\ngroups 2\n"));
    assert!(problem.starts_with("thalweg.toml:2: this is not TOML:"), "{problem}");
}

#[test]
fn a_file_that_cannot_be_read_is_an_error() {
    let named = Flags { config: Some(PathBuf::from(FILE)), ..Flags::default() };
    let problem = only_problem(load_plain(&named, &environment(&[])));
    assert_eq!(problem, "cannot read the settings file thalweg.toml: no file was named");
}

#[test]
fn values_that_contradict_each_other_are_shown_together() {
    let small = flags(&[("body_bytes_in_flight_max", "1MiB")]);
    let problem = only_problem(load_plain(&small, &environment(&[])));
    assert!(problem.contains("body_bytes_in_flight_max = `1MiB`"), "{problem}");
    assert!(problem.contains("append_bytes_max = `64MiB` (default)"), "{problem}");
}

#[test]
fn a_misspelt_variable_is_a_warning_and_a_foreign_one_is_not() {
    let variables = environment(&[("THALWEG_SHARD", "2"), ("THALWEG_SERVICE_HOST", "10.0.0.1")]);
    let effective = load_plain(&flags(&[]), &variables).unwrap();
    assert_eq!(
        effective.warnings,
        ["THALWEG_SHARD is no setting; did you mean THALWEG_SHARDS?".to_owned()]
    );
}

#[test]
fn the_printed_settings_load_again_to_the_same_values() {
    let given = flags(&[("data_dir", "a \"b\""), ("admin_listen", "off"), ("seal_bytes", "70000")]);
    let effective = load_plain(&given, &environment(&[])).unwrap();
    let printed = render(&effective);
    assert!(printed.contains("# Source: flag --seal-bytes; default: 8MiB.\nseal_bytes = 70000\n"));
    let again = load_with_file(flags(&[]), &environment(&[]), &printed).unwrap();
    assert_eq!(again.settings, effective.settings);
}

#[test]
fn no_two_settings_share_a_name() {
    let mut keys: Vec<&str> = TABLE.iter().map(|setting| setting.key).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), TABLE.len());
}

#[test]
fn zero_shards_take_one_for_two_cores() {
    let effective = load_plain(&flags(&[]), &environment(&[])).unwrap();
    assert_eq!(effective.settings.shard_count(6), 3);
    assert_eq!(effective.settings.shard_count(3), 2);
    assert_eq!(effective.settings.shard_count(1), 1);
    assert_eq!(effective.settings.shard_count(1000), 256);
    assert_eq!(effective.settings.shard_count(0), 1);
    let two = load_plain(&flags(&[("shards", "2")]), &environment(&[])).unwrap();
    assert_eq!(two.settings.shard_count(6), 2);
}
