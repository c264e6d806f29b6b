//! How the text of a value is read and written: one small type per kind of setting.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// A kind of value: its text form, its TOML form and its range.
pub(super) trait Kind {
    /// What the setting holds.
    type Value;

    /// Reads the text; `None` if it is not of this kind or out of range.
    fn parse(&self, text: &str) -> Option<Self::Value>;

    /// The value as a settings file has it.
    fn to_toml(&self, value: &Self::Value) -> String;

    /// What [`Kind::parse`] takes, in words.
    fn allowed(&self) -> String;
}

/// A path; only the empty one is refused.
pub(super) struct Directory;

impl Directory {
    pub(super) const fn placeholder(&self) -> &'static str {
        "DIR"
    }
}

impl Kind for Directory {
    type Value = PathBuf;

    fn parse(&self, text: &str) -> Option<PathBuf> {
        (!text.is_empty()).then(|| PathBuf::from(text))
    }

    fn to_toml(&self, value: &PathBuf) -> String {
        quoted(&value.display().to_string())
    }

    fn allowed(&self) -> String {
        "the path of a directory".to_owned()
    }
}

/// A file, or `none`.
pub(super) struct OptionalFile;

impl OptionalFile {
    pub(super) const fn placeholder(&self) -> &'static str {
        "FILE"
    }
}

impl Kind for OptionalFile {
    type Value = Option<PathBuf>;

    fn parse(&self, text: &str) -> Option<Option<PathBuf>> {
        if text == "none" { Some(None) } else { Directory.parse(text).map(Some) }
    }

    fn to_toml(&self, value: &Option<PathBuf>) -> String {
        value.as_ref().map_or_else(|| quoted("none"), |path| Directory.to_toml(path))
    }

    fn allowed(&self) -> String {
        "`none`, or the path of a file".to_owned()
    }
}

/// Where the lines of a log go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogTo {
    /// Nowhere.
    Off,
    /// To standard error.
    Stderr,
    /// Into a file.
    File(PathBuf),
}

/// A file, standard error, or `off`.
pub(super) struct LogPlace;

impl LogPlace {
    pub(super) const fn placeholder(&self) -> &'static str {
        "FILE|stderr|off"
    }
}

impl Kind for LogPlace {
    type Value = LogTo;

    fn parse(&self, text: &str) -> Option<LogTo> {
        match text {
            "off" => Some(LogTo::Off),
            "stderr" => Some(LogTo::Stderr),
            _ => Directory.parse(text).map(LogTo::File),
        }
    }

    fn to_toml(&self, value: &LogTo) -> String {
        match value {
            LogTo::Off => quoted("off"),
            LogTo::Stderr => quoted("stderr"),
            LogTo::File(path) => Directory.to_toml(path),
        }
    }

    fn allowed(&self) -> String {
        "`off`, `stderr`, or the path of a file".to_owned()
    }
}

/// An address with a port.
struct Address;

impl Kind for Address {
    type Value = SocketAddr;

    fn parse(&self, text: &str) -> Option<SocketAddr> {
        super::address::parse_address(text)
    }

    fn to_toml(&self, value: &SocketAddr) -> String {
        quoted(&value.to_string())
    }

    fn allowed(&self) -> String {
        "an address and a port, such as `127.0.0.1:4440`, `[::]:4440`, `:4440` or `4440`".to_owned()
    }
}

/// An address with a port, or `off`.
pub(super) struct OptionalAddress;

impl OptionalAddress {
    pub(super) const fn placeholder(&self) -> &'static str {
        "IP:PORT|off"
    }
}

impl Kind for OptionalAddress {
    type Value = Option<SocketAddr>;

    fn parse(&self, text: &str) -> Option<Option<SocketAddr>> {
        if text == "off" { Some(None) } else { Address.parse(text).map(Some) }
    }

    fn to_toml(&self, value: &Option<SocketAddr>) -> String {
        value.map_or_else(|| quoted("off"), |address| Address.to_toml(&address))
    }

    fn allowed(&self) -> String {
        format!("`off`, or {}", Address.allowed())
    }
}

/// A whole number from `min` to `max`; the unit is in the setting's name.
pub(super) struct Number<T> {
    pub(super) min: T,
    pub(super) max: T,
}

impl<T> Number<T> {
    pub(super) const fn placeholder(&self) -> &'static str {
        "N"
    }
}

impl<T: Copy + PartialOrd + TryFrom<u64> + fmt::Display> Kind for Number<T> {
    type Value = T;

    fn parse(&self, text: &str) -> Option<T> {
        let number = T::try_from(text.replace('_', "").parse::<u64>().ok()?).ok()?;
        (self.min <= number && number <= self.max).then_some(number)
    }

    fn to_toml(&self, value: &T) -> String {
        value.to_string()
    }

    fn allowed(&self) -> String {
        format!("a whole number from {} to {}", self.min, self.max)
    }
}

/// A size in bytes from `min` to `max`.
pub(super) struct Bytes<T> {
    pub(super) min: T,
    pub(super) max: T,
}

impl<T> Bytes<T> {
    pub(super) const fn placeholder(&self) -> &'static str {
        "SIZE"
    }
}

/// Suffixes and what they multiply by, largest binary one first: the order for writing.
const SUFFIXES: [(&str, u64); 8] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
];

impl<T: Copy + PartialOrd + TryFrom<u64> + fmt::Display> Kind for Bytes<T> {
    type Value = T;

    fn parse(&self, text: &str) -> Option<T> {
        let size = T::try_from(bytes_from(text)?).ok()?;
        (self.min <= size && size <= self.max).then_some(size)
    }

    fn to_toml(&self, value: &T) -> String {
        let text = bytes_to_text(&value.to_string());
        if text.ends_with('B') { quoted(&text) } else { text }
    }

    fn allowed(&self) -> String {
        format!(
            "a size from {} to {}: whole bytes, or with KiB, MiB, GiB, TiB, kB, MB, GB, as in `64MiB`",
            bytes_to_text(&self.min.to_string()),
            bytes_to_text(&self.max.to_string()),
        )
    }
}

fn bytes_from(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
    let (digits, suffix) = text.split_at(end);
    let number: u64 = digits.replace('_', "").parse().ok()?;
    let suffix = suffix.trim_start();
    if suffix.is_empty() {
        return Some(number);
    }
    let (_, factor) = SUFFIXES.iter().find(|(name, _)| name.eq_ignore_ascii_case(suffix))?;
    number.checked_mul(*factor)
}

/// The shortest exact form of a decimal count of bytes.
fn bytes_to_text(decimal: &str) -> String {
    let number: u64 = decimal.parse().expect("a number that was just written");
    SUFFIXES[..4]
        .iter()
        .find(|(_, factor)| number >= *factor && number.is_multiple_of(*factor))
        .map_or_else(|| decimal.to_owned(), |(name, factor)| format!("{}{name}", number / factor))
}

/// A size from `min` to `max` that is made of whole disk blocks.
pub(super) struct Blocks {
    pub(super) min: u64,
    pub(super) max: u64,
}

/// The block of every disk and file system that we run on.
const BLOCK_BYTES: u64 = 4096;

impl Blocks {
    pub(super) const fn placeholder(&self) -> &'static str {
        "SIZE"
    }

    const fn bytes(&self) -> Bytes<u64> {
        Bytes { min: self.min, max: self.max }
    }
}

impl Kind for Blocks {
    type Value = u64;

    fn parse(&self, text: &str) -> Option<u64> {
        self.bytes().parse(text).filter(|size| size.is_multiple_of(BLOCK_BYTES))
    }

    fn to_toml(&self, value: &u64) -> String {
        self.bytes().to_toml(value)
    }

    fn allowed(&self) -> String {
        format!("{}, a multiple of 4KiB", self.bytes().allowed())
    }
}

/// On or off.
pub(super) struct Switch;

impl Switch {
    pub(super) const fn placeholder(&self) -> &'static str {
        "on|off"
    }
}

impl Kind for Switch {
    type Value = bool;

    fn parse(&self, text: &str) -> Option<bool> {
        match text {
            "on" | "true" => Some(true),
            "off" | "false" => Some(false),
            _ => None,
        }
    }

    fn to_toml(&self, value: &bool) -> String {
        value.to_string()
    }

    fn allowed(&self) -> String {
        "`on` (or `true`), `off` (or `false`)".to_owned()
    }
}

/// One of a few names.
pub(super) struct Choice<T: 'static>(pub(super) &'static [(&'static str, T)]);

impl<T> Choice<T> {
    pub(super) const fn placeholder(&self) -> &'static str {
        "NAME"
    }
}

impl<T: Copy + PartialEq> Kind for Choice<T> {
    type Value = T;

    fn parse(&self, text: &str) -> Option<T> {
        self.0.iter().find(|(name, _)| *name == text).map(|(_, value)| *value)
    }

    fn to_toml(&self, value: &T) -> String {
        let named = self.0.iter().find(|(_, known)| known == value);
        quoted(named.expect("every value of a choice has a name").0)
    }

    fn allowed(&self) -> String {
        let names: Vec<String> = self.0.iter().map(|(name, _)| format!("`{name}`")).collect();
        names.join(", ")
    }
}

/// What clients may do that show nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anonymous {
    /// With an access file what that says; without one everything, on loopback.
    Auto,
    /// Everything.
    All,
    /// Nothing.
    None,
}

impl Anonymous {
    pub(super) const NAMES: [(&'static str, Self); 3] =
        [("auto", Self::Auto), ("all", Self::All), ("none", Self::None)];
}

/// Form of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// One JSON object per line.
    Json,
}

impl LogFormat {
    pub(super) const NAMES: [(&'static str, Self); 2] =
        [("text", Self::Text), ("json", Self::Json)];
}

/// Urgency of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    /// A person must look.
    Error,
    /// Something is off and was handled.
    Warn,
    /// What an operator wants to know of a healthy server.
    Info,
    /// Steps, for developers.
    Debug,
    /// Every step.
    Trace,
}

impl LogLevel {
    pub(super) const NAMES: [(&'static str, Self); 5] = [
        ("error", Self::Error),
        ("warn", Self::Warn),
        ("info", Self::Info),
        ("debug", Self::Debug),
        ("trace", Self::Trace),
    ];
}

/// The text as a TOML string.
pub(super) fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Bytes<usize> = Bytes { min: 1, max: 1 << 30 };

    #[test]
    fn sizes_take_binary_and_decimal_suffixes() {
        assert_eq!(SIZE.parse("4096"), Some(4096));
        assert_eq!(SIZE.parse("64MiB"), Some(64 << 20));
        assert_eq!(SIZE.parse("64 mib"), Some(64 << 20));
        assert_eq!(SIZE.parse("2MB"), Some(2_000_000));
        assert_eq!(SIZE.parse("1_000"), Some(1000));
    }

    #[test]
    fn sizes_that_could_be_misread_are_refused() {
        for text in ["", "MiB", "64M", "1.5GiB", "-1", "2GiB", "0", "99999999999999GiB"] {
            assert_eq!(SIZE.parse(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_are_written_in_their_shortest_exact_form() {
        assert_eq!(SIZE.to_toml(&(64 << 20)), "\"64MiB\"");
        assert_eq!(SIZE.to_toml(&1500), "1500");
    }

    #[test]
    fn blocks_are_whole() {
        let kind = Blocks { min: 1 << 20, max: 1 << 31 };
        assert_eq!(kind.parse("1028KiB"), Some(1028 << 10));
        assert_eq!(kind.parse("1025KiB"), None);
        assert!(kind.allowed().ends_with("a multiple of 4KiB"));
    }

    #[test]
    fn numbers_stay_in_their_range() {
        let kind = Number::<u16> { min: 1, max: 4096 };
        assert_eq!(kind.parse("4096"), Some(4096));
        assert_eq!(kind.parse("0"), None);
        assert_eq!(kind.parse("70000"), None);
        assert_eq!(kind.parse("+-3"), None);
    }

    #[test]
    fn an_admin_address_may_be_off() {
        assert_eq!(OptionalAddress.parse("off"), Some(None));
        assert_eq!(OptionalAddress.parse("elsewhere:1"), None);
    }
}
