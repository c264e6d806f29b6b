//! Rules with tokens that are the same in all tests.

use super::Shard;
use access::{Access, Secret, StaticToken, file};
use std::sync::Arc;
use thalweg_session::Input;

/// A token for each id, the same in all tests.
pub(crate) fn token(id: &str) -> String {
    StaticToken { id, secret: secret(id) }.render()
}

fn secret(id: &str) -> Secret {
    Secret::new([id.as_bytes()[0]; 32])
}

pub(crate) fn table(id: &str, grants: &str, more: &str) -> String {
    format!(
        "[[token]]\nid = \"{id}\"\nsha256 = \"{}\"\ngrants = {grants}\n{more}\n",
        secret(id).hash().render()
    )
}

/// The rules of a file, after those of `before`.
pub(crate) fn rules(text: &str, before: Option<&Access>) -> Arc<Access> {
    let rules = file::parse(text, &|_, _| Err("is not there".to_owned())).unwrap();
    Arc::new(Access::new(rules, 7, before))
}

pub(crate) fn reload(shard: &mut Shard, access: &Arc<Access>) {
    shard.handle(Input::Access(Arc::clone(access)));
    shard.run();
}

pub(crate) fn bearer(id: &str) -> String {
    format!("Authorization: Bearer {}\r\n", token(id))
}
