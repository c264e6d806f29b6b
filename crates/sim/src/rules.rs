//! The access file of a run: its text, the tokens, and what they allow, once more in a few lines.

use crate::mutant::Mutant;
use access::{Access, Secret, StaticToken, file};
use std::sync::Arc;

/// After so many simulated seconds by the wall clock the brief token ends.
const BRIEF_S: u64 = 25;

/// When that is: 2026-01-01T00:00:25Z.
pub(crate) const BRIEF_UNTIL_MS: u64 = (1_767_225_600 + BRIEF_S) * 1000;

/// What a guest shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Shows {
    Nothing,
    /// A token with some grants.
    Guest,
    /// One with the same grants, which ends.
    Brief,
    /// One with the same grants, which the file has at times.
    Passing,
    /// One that nobody has issued.
    Forged,
}

/// What a guest wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Deed {
    Read,
    Append,
    Create,
    Delete,
}

/// The token that may do everything.
pub(crate) fn owner() -> String {
    bearer("owner")
}

/// The value of `Authorization`.
pub(crate) fn field_of(shows: Shows) -> Option<String> {
    match shows {
        Shows::Nothing => None,
        Shows::Guest => Some(bearer("guest")),
        Shows::Brief => Some(bearer("brief")),
        Shows::Passing => Some(bearer("passing")),
        Shows::Forged => Some(bearer("forged")),
    }
}

/// Whether a guest may do something, as long as what it shows is known and has not ended.
pub(crate) fn may(shows: Shows, deed: Deed, path: &str) -> bool {
    match shows {
        Shows::Nothing => deed == Deed::Read && path == "shared/0",
        Shows::Guest | Shows::Brief | Shows::Passing => {
            let is_shared = deed == Deed::Read && path.starts_with("shared/");
            is_shared || (deed != Deed::Delete && path.starts_with("guest/"))
        }
        Shows::Forged => false,
    }
}

/// The rules of a run, or those that a mutant has in their place; `before` are those until now.
pub(crate) fn rules(
    mutant: Option<Mutant>,
    has_passing: bool,
    before: Option<&Access>,
) -> Arc<Access> {
    let own = match mutant {
        Some(Mutant::WideGrants) => r#"["read **", "read,append,create guest/"]"#,
        _ => r#"["read shared/", "read,append,create guest/"]"#,
    };
    let end = match mutant {
        Some(Mutant::EndlessTokens) => "",
        _ => "expires = 2026-01-01T00:00:25Z\n",
    };
    let table = |id: &str, grants: &str, more: &str| {
        let hash = secret(id).hash().render();
        format!("[[token]]\nid = \"{id}\"\nsha256 = \"{hash}\"\ngrants = {grants}\n{more}")
    };
    let text = "[anonymous]\ngrants = [\"read shared/0\"]\n".to_owned()
        + &table("owner", r#"["* **"]"#, "")
        + &table("guest", own, "")
        + &table("brief", own, end)
        + &if has_passing { table("passing", own, "") } else { String::new() };
    let rules = file::parse(&text, &|_, _| Err("there are no other files".to_owned()));
    Arc::new(Access::new(rules.expect("rules without a mistake"), 7, before))
}

fn bearer(id: &str) -> String {
    format!("Bearer {}", StaticToken { id, secret: secret(id) }.render())
}

fn secret(id: &str) -> Secret {
    Secret::new([id.as_bytes()[0]; 32])
}
