{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ include "loads.wgsl" $}
{$ include "sampling/choice.wgsl" $}
{$ from "loads.wgsl" import array_of, loaded $}
{$ set width = 4 if type.endswith("x4") else 1 $}
{$ set number = "vec4<f32>" if width == 4 else "f32" $}
{$ set elements = [".x", ".y", ".z", ".w"] if width == 4 else [""] $}
{# Tokens are chosen by the logits after masks and edits, if there are any; `raw` are the model's logits. #}
{$ set source_type = type if not edited else "f32x4" if width == 4 else "f32" $}
{$ set raw = "raw_" if edited else "" $}

var<storage> logits: {{ array_of(type) }};
var<storage> choices: array<i32>;
$$ if edited
var<storage> edited: {{ array_of(source_type) }};
$$ endif
var<storage> parts: array<vec4<u32>>;

// NaN and infinity, with which no token can be chosen.
fn is_unusable(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) >= 0x7f800000u && bitcast<u32>(x) != HIDDEN;
}

// One invocation per part of a row, which is every p.parts-th load: its highest logit, the first token that has it, the
// sum of all relative to the highest that the model gave, what it holds, the draw where tokens are drawn from all, and
// the highest and its token that the model gave.
$$ call per_thread()
    let row = i / p.parts;
    let choice = choice_of(row);
    let drawing = draws_freely(choice);
    var highest = -3.4e38;
    var token = 0u;
$$ if edited
    var raw_highest = -3.4e38;
    var raw_token = 0u;
$$ endif
    var sum = 0.0;
    var score = -3.4e38;
    var drawn = 0u;
    var holds = 0u;
    for (var s = i % p.parts; s < p.steps; s += p.parts) {
        let given = {{ loaded("logits[row * p.steps + s]", type) }};
$$ if edited
        let raw_x = max(given, {{ number }}(-3.4e38));
        let read = edited[row * p.steps + s];
$$ else
        let read = given;
$$ endif
        let x = max(read, {{ number }}(-3.4e38));
        let first = s * {{ width }}u;
        let before = {{ raw }}highest;
$$ for element in elements
        holds |= select(0u, UNUSABLE, is_unusable(given{{ element }}));
        holds |= select(CHOICE, 0u, bitcast<u32>(read{{ element }}) == HIDDEN);
$$ endfor
$$ for prefix in (["", raw] if edited else [""])
$$ for element in elements
        {{ prefix }}token = select({{ prefix }}token, first + {{ loop.index0 }}u, {{ prefix }}x{{ element }} > {{ prefix }}highest);
        {{ prefix }}highest = max({{ prefix }}highest, {{ prefix }}x{{ element }});
$$ endfor
$$ endfor
        let powers = exp({{ raw }}x - {{ raw }}highest);
        sum = sum * exp(before - {{ raw }}highest){$ for element in elements $} + powers{{ element }}{$ endfor $};
        for (var c = 0u; c < p.width && drawing; c++) {
            let noisy = x{{ "[c]" if width == 4 }} * choice.scale + gumbel(choice.key, first + c);
            drawn = select(drawn, first + c, noisy > score);
            score = max(score, noisy);
        }
    }
    parts[2u * i] = vec4<u32>(bitcast<u32>(highest), bitcast<u32>(sum), token, holds);
    parts[2u * i + 1u] = vec4<u32>(bitcast<u32>(score), drawn, bitcast<u32>({{ raw }}highest), {{ raw }}token);
$$ endcall
