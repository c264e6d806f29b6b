//! The settings as flags of the command line, made from the table.

use super::{Setting, TABLE, kind::Switch};
use clap::{Arg, ArgMatches, Command};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The flags that were given, still as text: reading them is the same for every source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Flags {
    /// The settings file, from `--config`.
    pub config: Option<PathBuf>,
    /// Text of each setting that was given, by its key.
    pub values: BTreeMap<&'static str, String>,
}

impl clap::FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        if let Some(path) = matches.get_one::<PathBuf>("config") {
            self.config = Some(path.clone());
        }
        for setting in TABLE {
            if let Some(text) = matches.get_one::<String>(setting.key) {
                self.values.insert(setting.key, text.clone());
            }
        }
        Ok(())
    }
}

impl clap::Args for Flags {
    fn augment_args(command: Command) -> Command {
        let config = Arg::new("config")
            .long("config")
            .value_name("FILE")
            .value_parser(clap::value_parser!(PathBuf))
            .help("Settings file in TOML [env: THALWEG_CONFIG] [default: none]");
        command.arg(config).next_help_heading("Settings").args(TABLE.iter().map(flag))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn flag(setting: &'static Setting) -> Arg {
    let arg = Arg::new(setting.key)
        .long(setting.flag())
        .value_name(setting.placeholder)
        .help(short_help(setting))
        .long_help(long_help(setting));
    // A switch that is named is on.
    if setting.placeholder == Switch.placeholder() {
        arg.num_args(0..=1).default_missing_value("on")
    } else {
        arg
    }
}

fn short_help(setting: &Setting) -> String {
    let sentence = setting.help.trim().split(['.', ';', ':']).next().unwrap_or_default();
    format!("{sentence} [default: {}]", setting.default)
}

fn long_help(setting: &Setting) -> String {
    format!(
        "{}\n\nTakes {}.\n[default: {}] [env: {}] [file: {}]",
        setting.help.trim(),
        (setting.allowed)(),
        setting.default,
        setting.variable(),
        setting.key,
    )
}
