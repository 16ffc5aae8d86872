// Bytes lie four to a word, the first in the lowest bits. An invocation that writes bytes owns whole words.

// The four bytes of a word, as signed numbers.
fn signed_bytes(word: u32) -> vec4<i32> {
    return bitcast<vec4<i32>>(vec4<u32>(word) << vec4<u32>(24u, 16u, 8u, 0u)) >> vec4<u32>(24u);
}

// A word of which only the first `count` bytes are inside the tensor; the others are 0.
fn word_of(bytes: vec4<i32>, count: u32) -> u32 {
    let placed = (bitcast<vec4<u32>>(bytes) & vec4<u32>(255u)) << vec4<u32>(0u, 8u, 16u, 24u);
    let kept = select(vec4<u32>(), placed, vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(count));
    return kept.x | kept.y | kept.z | kept.w;
}
