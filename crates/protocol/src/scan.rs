//! Looks at every byte of a short text, eight or sixteen at a time. Conditions should have no branch (`&`, not `&&`).

/// Whether `is` holds for any byte. It is asked of all of them, so it should be cheap.
#[inline]
pub(crate) fn any(bytes: &[u8], is: impl Fn(u8) -> bool + Copy) -> bool {
    if let Some(last) = bytes.last_chunk::<16>() {
        // It may hold bytes that the others have.
        return any_of(last, is)
            || bytes.as_chunks().0.iter().any(|block: &[u8; 16]| any_of(block, is));
    }
    match (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        (Some(first), Some(last)) => any_of(first, is) | any_of(last, is),
        _ => bytes.iter().fold(false, |found, byte| found | is(*byte)),
    }
}

/// Whether `is` holds for any two bytes that follow one another.
#[inline]
pub(crate) fn any_pair(bytes: &[u8], is: impl Fn(u8, u8) -> bool + Copy) -> bool {
    let Some((_, seconds)) = bytes.split_first() else { return false };
    let firsts = &bytes[..seconds.len()];
    let (Some(first), Some(second)) = (firsts.last_chunk::<16>(), seconds.last_chunk::<16>())
    else {
        return firsts.iter().zip(seconds).any(|(first, second)| is(*first, *second));
    };
    let blocks = firsts.as_chunks().0.iter().zip(seconds.as_chunks().0);
    any_pair_of(first, second, is)
        || blocks.into_iter().any(|(firsts, seconds)| any_pair_of(firsts, seconds, is))
}

#[inline]
fn any_of<const N: usize>(block: &[u8; N], is: impl Fn(u8) -> bool) -> bool {
    block.iter().fold(false, |found, byte| found | is(*byte))
}

#[inline]
fn any_pair_of(firsts: &[u8; 16], seconds: &[u8; 16], is: impl Fn(u8, u8) -> bool) -> bool {
    firsts.iter().zip(seconds).fold(false, |found, (first, second)| found | is(*first, *second))
}

#[cfg(test)]
mod tests {
    use super::any_pair;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn blocks_find_what_a_walk_finds(
            bytes in prop::collection::vec(prop_oneof![9 => Just(b'a'), 1 => any::<u8>()], 0..80),
        ) {
            for wanted in [b'a', b'b', bytes.last().copied().unwrap_or(0)] {
                let found = super::any(&bytes, |byte| byte == wanted);
                prop_assert_eq!(found, bytes.contains(&wanted));
                let is = |first, second| second == wanted && first != b'a';
                let walked = bytes.windows(2).any(|pair| is(pair[0], pair[1]));
                prop_assert_eq!(any_pair(&bytes, is), walked);
            }
        }
    }
}
