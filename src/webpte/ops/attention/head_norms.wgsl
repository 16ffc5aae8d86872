{# With `norm_eps`: the RMS norms of queries and keys. Their weights lie among the rotary tables, those of queries at load
   p.norms of the cosines, those of keys at the same load of the sines. Every kernel sums in this order. #}
{$ from "loads.wgsl" import loaded $}
$$ if norm_eps
$$ for name, rows in [("query", "q"), ("key", "k")] if rows in normed
fn {{ name }}_factor(row: u32) -> f32 {
    var sum = vec4<f32>();
    for (var d = 0u; d < p.key_steps; d++) {
        let x = {{ loaded(rows ~ "[row * p.key_steps + d]", type) }};
        sum += x * x;
    }
    return inverseSqrt(dot(sum, vec4<f32>(1.0)) / f32(4u * p.key_steps) + {{ norm_eps }});
}

$$ endfor
fn norm_weight(first: u32, d: u32) -> vec4<f32> {
$$ if rotary == "neighbours"
    return vec4<f32>(cosine[first + 2u * d], cosine[first + 2u * d + 1u]);
$$ else
    return cosine[first + d];
$$ endif
}

$$ endif
