//! Base64, padded. Source: RFC 4648 §4.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Appends `bytes` in base64.
pub(crate) fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    let symbol = |bits: u32, place: u32| ALPHABET[(bits >> (6 * place) & 63) as usize];
    let start = out.len();
    // All at once: growing by four bytes at a time costs more than the encoding.
    out.resize(start + bytes.len().div_ceil(3) * 4, b'=');
    let (triples, rest) = bytes.as_chunks::<3>();
    let (quads, _) = out[start..].as_chunks_mut::<4>();
    for (quad, [first, second, third]) in quads.iter_mut().zip(triples) {
        let bits = u32::from(*first) << 16 | u32::from(*second) << 8 | u32::from(*third);
        *quad = [symbol(bits, 3), symbol(bits, 2), symbol(bits, 1), symbol(bits, 0)];
    }
    if let (Some(quad), Some(first)) = (quads.get_mut(triples.len()), rest.first()) {
        let bits = u32::from(*first) << 16 | u32::from(rest.get(1).copied().unwrap_or(0)) << 8;
        (quad[0], quad[1]) = (symbol(bits, 3), symbol(bits, 2));
        if rest.len() == 2 {
            quad[2] = symbol(bits, 1);
        }
    }
}
