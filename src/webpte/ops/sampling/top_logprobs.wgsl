{$ include "kernel.wgsl" $}
{$ include "loads.wgsl" $}
{$ include "lanes.wgsl" $}
{$ set number, largest = "f32", True $}
{$ include "best.wgsl" $}
{$ from "loads.wgsl" import array_of, loaded $}
{$ from "main.wgsl" import per_row $}
{$ set width = 4 if type.endswith("x4") else 1 $}

var<storage> logits: {{ array_of(type) }};
var<storage> parts: array<vec4<u32>>;
var<storage> tokens: array<i32>;
var<storage> log_probabilities: array<f32>;

const LANES = {{ lanes }}u;
const UNUSABLE = 1u;
const LOWEST = -3.4e38;

// The most probable token of each part that is not listed yet.
var<workgroup> part_value: array<f32, {{ max_parts }}>;
var<workgroup> part_token: array<u32, {{ max_parts }}>;
var<workgroup> holds: atomic<u32>;

// One workgroup per row lists the most probable tokens in order, then -1. Of equal ones the first comes first. Each step
// appends the most probable token of all parts, and searches its part again.
$$ call per_row(subgroups)
    if (lane == 0u) {
        atomicStore(&holds, 0u);
    }
    workgroupBarrier();
    var best = LOWEST;
    for (var i = lane; i < p.parts; i += LANES) {
        let at = 2u * (row * p.parts + i);
        part_value[i] = bitcast<f32>(parts[at + 1u].z);
        part_token[i] = parts[at + 1u].w;
        best = max(best, part_value[i]);
        atomicOr(&holds, parts[at].w);
    }
    let highest = highest_over_lanes(lane, best);
    let usable = (atomicLoad(&holds) & UNUSABLE) == 0u;
    var sum = 0.0;
    for (var i = lane; i < p.parts; i += LANES) {
        sum += bitcast<f32>(parts[2u * (row * p.parts + i)].y) * exp(part_value[i] - highest);
    }
    let total = sum_over_lanes(lane, sum);

    for (var rank = 0u; rank < p.tops; rank++) {
        best = LOWEST;
        var token = 0xffffffffu;
        for (var i = lane; i < p.parts; i += LANES) {
            if (part_value[i] > best || (part_value[i] == best && part_token[i] < token)) {
                best = part_value[i];
                token = part_token[i];
            }
        }
        let next = best_over_lanes(lane, key_of(best), token);
        let value = value_of(next.x);
        let listed = next.y;
        let is_token = usable && value > LOWEST && listed < p.vocabulary;
        if (lane == 0u) {
            tokens[row * p.tops + rank] = select(-1, i32(listed), is_token);
            log_probabilities[row * p.tops + rank] = select(0.0, value - highest - log(total), is_token);
        }
        let part = listed / {{ width }}u % p.parts;
        best = LOWEST;
        token = 0xffffffffu;
        for (var s = part + lane * p.parts; s < p.steps; s += LANES * p.parts) {
            let read = {{ loaded("logits[row * p.steps + s]", type) }};
            for (var c = 0u; c < p.width; c++) {
                let x = max(read{{ "[c]" if width == 4 }}, LOWEST);
                let other = s * {{ width }}u + c;
                let unlisted = x < value || (x == value && other > listed);
                if (unlisted && (x > best || (x == best && other < token))) {
                    best = x;
                    token = other;
                }
            }
        }
        let left = best_over_lanes(lane, key_of(best), token);
        if (lane == 0u) {
            part_value[part] = value_of(left.x);
            part_token[part] = left.y;
        }
        workgroupBarrier();
    }
$$ endcall
