//! The effective settings as a settings file: what `thalweg config` prints.

use super::{Effective, Source};
use std::fmt::Write;

const WIDTH: usize = 98;

/// Every setting with its meaning, range and origin, as TOML that can be saved and started from.
#[must_use]
pub fn render(effective: &Effective) -> String {
    let mut text = String::from(
        "# Effective settings. Save them as a file and start with:\n\
         #   thalweg serve --config FILE\n",
    );
    for (chosen, value) in effective.chosen.iter().zip(effective.settings.to_toml()) {
        let setting = chosen.setting;
        text.push('\n');
        comment(&mut text, setting.help.trim());
        comment(&mut text, &format!("Takes {}.", (setting.allowed)()));
        match chosen.source {
            Source::Default => comment(&mut text, "Source: default."),
            _ => comment(
                &mut text,
                &format!("Source: {}; default: {}.", chosen.source, setting.default),
            ),
        }
        writeln!(text, "{} = {value}", setting.key).expect("writing to a string succeeds");
    }
    text
}

/// Appends `words` as comment lines of at most [`WIDTH`] characters.
fn comment(text: &mut String, words: &str) {
    let mut line = String::from("#");
    for word in words.split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > WIDTH {
            text.push_str(&line);
            text.push('\n');
            line = String::from("#");
        }
        line.push(' ');
        line.push_str(word);
    }
    text.push_str(&line);
    text.push('\n');
}
