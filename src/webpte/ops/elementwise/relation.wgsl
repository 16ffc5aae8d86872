// Return the relation of a to b as one bit: 1 less, 2 equal, 4 greater, 8 unordered, as NaN is.
fn relation_{{ number }}(a: {{ number }}, b: {{ number }}) -> i32 {
$$ if number == "f32"
    if (is_nan(a) || is_nan(b)) {
        return 8;
    }
    // By bits, so that infinities and subnormals count; -0 equals 0.
    let left = select(order_key(a), 0, (bitcast<u32>(a) << 1u) == 0u);
    let right = select(order_key(b), 0, (bitcast<u32>(b) << 1u) == 0u);
$$ else
    let left = a;
    let right = b;
$$ endif
    return select(select(4, 2, left == right), 1, left < right);
}
