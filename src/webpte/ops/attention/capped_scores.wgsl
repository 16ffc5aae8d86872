{# With `cap`: scores x as cap * tanh(x / cap), one by one and as the vector `score` of the query heads that share keys. #}
$$ if cap
{$ include "elementwise/hyperbolic.wgsl" $}
fn capped_score(x: f32) -> f32 {
    return {{ cap }} * hyperbolic_tangent(x / {{ cap }});
}

{$ set parts = {"f32": [""], "vec2<f32>": [".x", ".y"], "vec3<f32>": [".x", ".y", ".z"], "vec4<f32>": [".x", ".y", ".z", ".w"]}[score] $}
fn capped_scores(x: {{ score }}) -> {{ score }} {
    return {{ score }}({$ for part in parts $}capped_score(x{{ part }}){{ ", " if not loop.last }}{$ endfor $});
}

$$ endif
