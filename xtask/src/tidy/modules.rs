//! Modules of a crate that are above all its others, as crates are above each other in `arrows`.

use super::{Finding, Sources, circles};

/// A crate, a module of it that no file outside may import, and why. Re-exports at the root are allowed.
const TOP: &[(&str, &str, &str)] = &[(
    "protocol",
    "face",
    "a wire does not know what is said over it: pass it as an argument, or through `HeadSink`",
)];

pub(super) fn check(sources: &Sources) -> Vec<Finding> {
    TOP.iter()
        .flat_map(|(name, module, advice)| check_module(sources, name, module, advice))
        .collect()
}

fn check_module(sources: &Sources, name: &str, module: &str, advice: &str) -> Vec<Finding> {
    let inside = format!("crates/{name}/src/{module}/");
    let arrows = circles::arrows_of(sources, name).into_iter();
    let from_below =
        arrows.filter(|(from, to)| !from.starts_with(&inside) && to.starts_with(&inside));
    let finding = |(from, to): (&str, &str)| {
        Finding::new(from, 0, format!("this file must not import `{module}`: {to}"), advice)
    };
    from_below.map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACE: [(&str, &str); 2] = [
        ("crates/protocol/src/face/mod.rs", "pub mod durable;"),
        ("crates/protocol/src/face/durable/mod.rs", "pub struct Offset;"),
    ];

    fn found(files: &[(&str, &str)]) -> Vec<Finding> {
        check(&Sources::of(&[&FACE, files].concat()))
    }

    fn of(path: &str, text: &str) -> usize {
        found(&[(path, text)]).len()
    }

    #[test]
    fn a_wire_that_imports_a_face_is_found() {
        let wire = "crates/protocol/src/http1/head.rs";
        assert_eq!(of(wire, "use crate::face::durable::Offset;"), 1);
        assert_eq!(of(wire, "fn f(a: &super::super::face::durable::Offset) {}"), 1);
        assert_eq!(of(wire, "use crate::head::HeadSink;"), 0);
    }

    #[test]
    fn a_reexport_hides_nothing_and_is_allowed() {
        let lib = ("crates/protocol/src/lib.rs", "pub use face::durable::Offset;");
        let wire = ("crates/protocol/src/sse/mod.rs", "use crate::Offset;");
        assert_eq!(found(&[lib]), []);
        let found = found(&[lib, wire]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].path, wire.0);
    }

    #[test]
    fn a_face_and_tests_may_import_a_face() {
        let inner = "crates/protocol/src/face/durable/client.rs";
        assert_eq!(of(inner, "use super::Offset; use crate::face::durable::Offset as O;"), 0);
        let test = "#[cfg(test)] mod tests { use crate::face::durable::Offset; }";
        assert_eq!(of("crates/protocol/src/http1/head.rs", test), 0);
        assert_eq!(
            of("crates/protocol/src/http1/tests.rs", "use crate::face::durable::Offset;"),
            0
        );
    }
}
