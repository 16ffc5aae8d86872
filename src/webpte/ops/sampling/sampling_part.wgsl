{$ include "kernel.wgsl" $}
{$ include "loads.wgsl" $}
{$ include "sampling/gumbel.wgsl" $}
{$ from "loads.wgsl" import array_of, loaded $}
{$ set lanes = 4 if type.endswith("x4") else 1 $}
{$ set number = "vec4<f32>" if lanes == 4 else "f32" $}

@group(1) @binding(0) var<storage, read> logits: {{ array_of(type) }};
@group(1) @binding(1) var<storage, read> settings: array<i32>;
@group(1) @binding(2) var<storage, read_write> parts: array<vec4<u32>>;

// NaN and infinity, from which nothing can be chosen.
fn is_unusable(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) >= 0x7f800000u && bitcast<u32>(x) != HIDDEN;
}

// One invocation per part of a row, which is every p.parts-th load: its highest logit, the first token that has it, the
// sum of all relative to it, what it holds, and where tokens are drawn from all, the draw.
@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = thread_index(id, groups);
    if (i >= p.threads) {
        return;
    }
    let row = i / p.parts;
    let choice = choice_of(row);
    let drawing = draws_freely(choice);
    var highest = -3.4e38;
    var token = 0u;
    var sum = 0.0;
    var score = -3.4e38;
    var drawn = 0u;
    var holds = 0u;
    for (var s = i % p.parts; s < p.steps; s += p.parts) {
        let read = {{ loaded("logits[row * p.steps + s]", type) }};
$$ for element in (["read.x", "read.y", "read.z", "read.w"] if lanes == 4 else ["read"])
        holds |= select(0u, UNUSABLE, is_unusable({{ element }}));
        holds |= select(CHOICE, 0u, bitcast<u32>({{ element }}) == HIDDEN);
$$ endfor
        let x = max(read, {{ number }}(-3.4e38));
        let first = s * {{ lanes }}u;
        let before = highest;
$$ if lanes == 4
$$ for c in "xyzw"
        token = select(token, first + {{ loop.index0 }}u, x.{{ c }} > highest);
        highest = max(highest, x.{{ c }});
$$ endfor
        let powers = exp(x - highest);
        sum = sum * exp(before - highest) + powers.x + powers.y + powers.z + powers.w;
$$ else
        token = select(token, first, x > highest);
        highest = max(highest, x);
        sum = sum * exp(before - highest) + exp(x - highest);
$$ endif
        for (var c = 0u; c < p.lanes && drawing; c++) {
            let noisy = x{{ "[c]" if lanes == 4 }} * choice.scale + gumbel(choice.key, first + c);
            drawn = select(drawn, first + c, noisy > score);
            score = max(score, noisy);
        }
    }
    parts[2u * i] = vec4<u32>(bitcast<u32>(highest), bitcast<u32>(sum), token, holds);
    parts[2u * i + 1u] = vec4<u32>(bitcast<u32>(score), drawn, 0u, 0u);
}
