//! What may be done with which paths.
//!
//! # Format
//! A grant is a list of operations, a blank, and a path: `read,append logs/`.
//!
//! | path | covers |
//! |---|---|
//! | `chat/42` | this stream alone |
//! | `chat/` | everything under it |
//! | `**` | everything |
//!
//! # Invariants
//! - Paths are compared as decoded text, by whole segments: `chat/` covers `chat/42`, never `chatter`.
//! - A variable such as `{sub}` takes the place of exactly one segment. A value that could be read as more than
//!   one, or as none, grants nothing.

use model::StreamPath;
use std::fmt;

/// Something that can be done with a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// Read a stream, live too, or describe it.
    Read,
    /// List the streams under a path.
    List,
    /// Append to a stream, or close it.
    Append,
    /// Create a stream.
    Create,
    /// Delete a stream, trim it, or change how long it keeps its data.
    Delete,
    /// Subscribe to streams.
    Subscribe,
}

/// A set of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operations(u8);

/// Some operations on some paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    operations: Operations,
    scope: Scope,
}

/// The paths of a grant.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Scope {
    All,
    /// Ends with a slash.
    Under(Box<str>),
    Exact(Box<str>),
}

/// A grant with variables in its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantTemplate {
    operations: Operations,
    path: Box<str>,
}

/// Why a text is not a grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GrantError {
    /// It is not two words with a blank between them.
    Shape,
    /// An operation that there is not.
    Operation {
        /// As written.
        name: Box<str>,
        /// What was probably meant.
        nearest: Option<&'static str>,
    },
    /// A path that begins with a slash: paths of streams do not.
    LeadingSlash,
    /// A `*` in a path other than `**`.
    Wildcard,
    /// Not a path of a stream.
    Path,
    /// A brace that belongs to no variable, or a variable that is not a whole segment.
    Variable,
    /// A variable where none has a value.
    Unbound {
        /// Its name.
        name: Box<str>,
    },
}

/// What names operations in grants besides their own names.
const ALL: &str = "*";
const WRITE: &str = "write";

impl Operation {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Read, Self::List, Self::Append, Self::Create, Self::Delete, Self::Subscribe];

    /// As grants and answers name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::List => "list",
            Self::Append => "append",
            Self::Create => "create",
            Self::Delete => "delete",
            Self::Subscribe => "subscribe",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl Operations {
    /// Everything.
    pub const ALL: Self = Self(0x3f);

    /// Only one.
    #[must_use]
    pub const fn only(operation: Operation) -> Self {
        Self(operation.bit())
    }

    /// Whether it is among them.
    #[inline]
    #[must_use]
    pub const fn has(self, operation: Operation) -> bool {
        self.0 & operation.bit() != 0
    }

    fn parse(list: &str) -> Result<Self, GrantError> {
        let mut set = 0;
        for name in list.split(',') {
            set |= match name {
                ALL => Self::ALL.0,
                WRITE => Operation::Append.bit() | Operation::Create.bit(),
                name => one_operation(name)?.bit(),
            };
        }
        Ok(Self(set))
    }
}

fn one_operation(name: &str) -> Result<Operation, GrantError> {
    Operation::ALL.into_iter().find(|operation| operation.name() == name).ok_or_else(|| {
        let names = Operation::ALL.iter().map(|operation| operation.name()).chain([WRITE]);
        GrantError::Operation { name: name.into(), nearest: crate::file::nearest(name, names) }
    })
}

impl fmt::Display for Operations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::ALL {
            return f.write_str(ALL);
        }
        let names = Operation::ALL.iter().filter(|operation| self.has(**operation));
        let names: Vec<_> = names.map(|operation| operation.name()).collect();
        f.write_str(&names.join(","))
    }
}

impl Grant {
    /// Everything.
    pub const ALL: Self = Self { operations: Operations::ALL, scope: Scope::All };

    /// Reads a grant without variables.
    ///
    /// # Errors
    /// [`GrantError`] says what is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, GrantError> {
        let template = GrantTemplate::parse(text)?;
        match variables(&template.path).next() {
            Some(name) => Err(GrantError::Unbound { name: name.into() }),
            None => Ok(Self::new(template.operations, &template.path)),
        }
    }

    /// `path` must be checked already.
    pub(crate) fn new(operations: Operations, path: &str) -> Self {
        let scope = match path {
            "**" => Scope::All,
            path if path.ends_with('/') => Scope::Under(path.into()),
            path => Scope::Exact(path.into()),
        };
        Self { operations, scope }
    }

    /// One path, whatever it looks like.
    pub(crate) fn exact(operations: Operations, path: &str) -> Self {
        Self { operations, scope: Scope::Exact(path.into()) }
    }

    /// Whether it allows `operation` on `path`.
    #[inline]
    #[must_use]
    pub fn allows(&self, operation: Operation, path: &str) -> bool {
        self.operations.has(operation) && self.scope.covers(path)
    }

    /// The operations.
    #[must_use]
    pub fn operations(&self) -> Operations {
        self.operations
    }
}

impl Scope {
    #[inline]
    fn covers(&self, path: &str) -> bool {
        match self {
            Self::All => true,
            // It ends with a slash, so what follows begins with a segment.
            Self::Under(prefix) => path.starts_with(&**prefix),
            Self::Exact(exact) => path == &**exact,
        }
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = match &self.scope {
            Scope::All => "**",
            Scope::Under(path) | Scope::Exact(path) => path,
        };
        write!(f, "{} {path}", self.operations)
    }
}

impl GrantTemplate {
    /// Reads a grant that may have variables.
    ///
    /// # Errors
    /// [`GrantError`] says what is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, GrantError> {
        let (operations, path) = text.split_once(' ').ok_or(GrantError::Shape)?;
        let operations = Operations::parse(operations)?;
        check_path(path)?;
        Ok(Self { operations, path: path.into() })
    }

    /// The grant with the values of its variables; `None` if one has no value that is a single segment.
    #[must_use]
    pub fn bind<'v>(&self, value_of: &dyn Fn(&str) -> Option<&'v str>) -> Option<Grant> {
        if !self.path.contains('{') {
            return Some(Grant::new(self.operations, &self.path));
        }
        let mut path = String::with_capacity(self.path.len());
        for (place, segment) in self.path.split('/').enumerate() {
            if place > 0 {
                path.push('/');
            }
            path.push_str(match variable(segment) {
                Some(name) => value_of(name).filter(|value| is_one_segment(value))?,
                None => segment,
            });
        }
        // A long value may make the path too long for a stream.
        StreamPath::new(&path).ok()?;
        Some(Grant::new(self.operations, &path))
    }
}

/// Whether a value of a variable can be read as one segment and nothing else.
fn is_one_segment(value: &str) -> bool {
    !value.is_empty()
        && !value.contains(['/', '*', '{', '}'])
        && value != "."
        && value != ".."
        && StreamPath::new(value).is_ok()
}

fn variable(segment: &str) -> Option<&str> {
    segment.strip_prefix('{')?.strip_suffix('}')
}

fn variables(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(variable)
}

fn check_path(path: &str) -> Result<(), GrantError> {
    if path == "**" {
        return Ok(());
    }
    if path.starts_with('/') {
        return Err(GrantError::LeadingSlash);
    }
    if path.contains('*') {
        return Err(GrantError::Wildcard);
    }
    for segment in path.split('/') {
        let rest = variable(segment).unwrap_or(segment);
        let is_named = rest.len() == segment.len() || !rest.is_empty();
        if rest.contains(['{', '}']) || !is_named {
            return Err(GrantError::Variable);
        }
    }
    StreamPath::new(path).map(drop).map_err(|_| GrantError::Path)
}

impl fmt::Display for GrantError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shape => f.write_str(
                "a grant is operations, one blank and a path, as in `read,append logs/`",
            ),
            Self::Operation { name, nearest } => {
                write!(f, "there is no operation `{name}`")?;
                match nearest {
                    Some(nearest) => write!(f, "; did you mean `{nearest}`?"),
                    None => f.write_str(
                        "; there are read, list, append, create, delete, subscribe, write (append and create) and *",
                    ),
                }
            }
            Self::LeadingSlash => {
                f.write_str("a path does not begin with a slash; write `logs/`, not `/logs/`")
            }
            Self::Wildcard => f.write_str(
                "a path has no `*`; `logs/` covers everything under it, and `**` everything",
            ),
            Self::Path => f.write_str("this is not a path that a stream may have"),
            Self::Variable => f.write_str("a variable is a whole segment, as in `users/{sub}/`"),
            Self::Unbound { name } => {
                write!(
                    f,
                    "`{{{name}}}` has no value here; only the grants of an issuer take variables"
                )
            }
        }
    }
}

impl std::error::Error for GrantError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(grant: &str, operation: Operation, path: &str) -> bool {
        Grant::parse(grant).unwrap().allows(operation, path)
    }

    #[test]
    fn a_prefix_covers_whole_segments_only() {
        assert!(allows("read chat/", Operation::Read, "chat/42"));
        assert!(allows("read chat/", Operation::Read, "chat/a/b"));
        for path in ["chat", "chatter", "chatter/42", "Chat/42", "a/chat/42"] {
            assert!(!allows("read chat/", Operation::Read, path), "{path}");
        }
    }

    #[test]
    fn a_path_without_a_slash_at_its_end_is_one_stream() {
        assert!(allows("read chat/42", Operation::Read, "chat/42"));
        for path in ["chat/42/", "chat/421", "chat/42/a", "chat"] {
            assert!(!allows("read chat/42", Operation::Read, path), "{path}");
        }
    }

    #[test]
    fn operations_are_what_they_say() {
        assert!(
            allows("write a", Operation::Append, "a") && allows("write a", Operation::Create, "a")
        );
        assert!(
            !allows("write a", Operation::Delete, "a") && !allows("write a", Operation::Read, "a")
        );
        assert!(Operation::ALL.iter().all(|operation| allows("* **", *operation, "x")));
        assert_eq!(Grant::parse("append,read,read x/").unwrap().to_string(), "read,append x/");
    }

    #[test]
    fn a_text_that_is_no_grant_says_why() {
        let error = |text: &str| Grant::parse(text).unwrap_err();
        assert_eq!(error("read"), GrantError::Shape);
        assert_eq!(error("read /logs/"), GrantError::LeadingSlash);
        assert_eq!(error("read logs/*"), GrantError::Wildcard);
        assert_eq!(error("read a/../b"), GrantError::Path);
        assert_eq!(error("read  a\tb"), GrantError::Path);
        assert_eq!(error("read "), GrantError::Path);
        assert_eq!(error("read u-{sub}"), GrantError::Variable);
        assert_eq!(error("read u/{}/"), GrantError::Variable);
        assert_eq!(error("read u/{sub}/"), GrantError::Unbound { name: "sub".into() });
        let GrantError::Operation { nearest, .. } = error("raed a") else { panic!() };
        assert_eq!(nearest, Some("read"));
    }

    #[test]
    fn a_variable_takes_one_segment() {
        let template = GrantTemplate::parse("read,append users/{sub}/").unwrap();
        let bind = |value: Option<&'static str>| template.bind(&|_| value);
        assert!(bind(Some("ann")).unwrap().allows(Operation::Read, "users/ann/x"));
        assert!(!bind(Some("ann")).unwrap().allows(Operation::Read, "users/anna/x"));
        for value in ["", ".", "..", "a/b", "/", "**", "a*", "{sub}", "a\u{7f}"] {
            assert_eq!(bind(Some(value)), None, "{value:?}");
        }
        assert_eq!(bind(None), None);
        let long: &'static str = "x".repeat(model::limits::PATH_BYTES_MAX).leak();
        assert_eq!(bind(Some(long)), None);
    }

    #[test]
    fn a_value_cannot_make_a_grant_wider() {
        let template = GrantTemplate::parse("read {a}").unwrap();
        assert_eq!(template.bind(&|_| Some("**")), None);
        let exact = template.bind(&|_| Some("ann")).unwrap();
        assert!(exact.allows(Operation::Read, "ann") && !exact.allows(Operation::Read, "ann/x"));
    }
}
