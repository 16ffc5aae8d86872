{# How kernels load several neighbours at once. A kind is f32x4, f16x4, f16wx4, f32x2, ... or f16w; f16 that are
   loaded in groups travel as words, so that they need no f16 in the shader. #}
{$ macro array_of(kind) -$}
{$ if kind == "f16x4" or kind == "f16x2" -$}
array<{{ "vec2<u32>" if kind == "f16x4" else "u32" }}>
{$- elif kind == "i8x4" -$}
array<u32>
{$- else -$}
array<{{ "vec4<f32>" if kind.endswith("x4") else "vec2<f32>" if kind.endswith("x2") else kind }}>
{$- endif $}
{$- endmacro $}
{# What one load yields, as f32, vec2<f32> or vec4<f32>. #}
{$ macro loaded(load, kind) -$}
{$ if kind == "f16x4" -$}
halves({{ load }})
{$- elif kind == "f16x2" -$}
unpack2x16float({{ load }})
{$- elif kind == "f16" -$}
f32({{ load }})
{$- else -$}
{{ load }}
{$- endif $}
{$- endmacro $}
{# A value in the form it is stored in. #}
{$ macro storable(value, kind) -$}
{$ if kind == "f16x4" -$}
words_of({{ value }})
{$- elif kind == "f16wx4" -$}
rounded_halves({{ value }})
{$- elif kind in ("f16", "f16w") -$}
{{ kind }}({{ value }})
{$- else -$}
{{ value }}
{$- endif $}
{$- endmacro $}
fn halves(words: vec2<u32>) -> vec4<f32> {
    return vec4<f32>(unpack2x16float(words.x), unpack2x16float(words.y));
}

fn words_of(v: vec4<f32>) -> vec2<u32> {
    return vec2<u32>(pack2x16float(v.xy), pack2x16float(v.zw));
}
