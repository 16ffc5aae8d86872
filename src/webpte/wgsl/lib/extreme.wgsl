// Return whether v replaces the best so far. The first of equals stays. NaN, recognized by its bits, beats every number.
fn beats(v: {{ number }}, best: {{ number }}) -> bool {
$$ if number == "f32"
    let v_is_nan = (bitcast<u32>(v) & 0x7fffffffu) > 0x7f800000u;
    let best_is_nan = (bitcast<u32>(best) & 0x7fffffffu) > 0x7f800000u;
    return !best_is_nan && (v_is_nan || v {{ ">" if largest else "<" }} best);
$$ else
    return v {{ ">" if largest else "<" }} best;
$$ endif
}
