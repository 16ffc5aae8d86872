{$ include "kernel.wgsl" $}
{$ set number = "f32" if result in ("f16", "f16w") else result $}
{$ set largest = name == "amax" $}

var<storage> x: array<{{ source }}>;
var<storage> y: array<{{ result }}>;

{$ include "reduce_walk.wgsl" $}

{$ include "reduce/reduce_element.wgsl" $}
$$ if name in ("amax", "amin")
{$ include "extreme.wgsl" $}
$$ endif

fn combined(a: {{ number }}, b: {{ number }}) -> {{ number }} {
$$ if name == "prod"
    return a * b;
$$ elif name in ("amax", "amin")
    return select(a, b, beats(b, a));
$$ else
    return a + b;
$$ endif
}

const LANES = {{ lanes }}u;
const BLOCK = {{ 256 * lanes }}u;  // partial results of bounded length keep the rounding error of long sums small
$$ if lanes > 1
var<workgroup> by_lane: array<{{ number }}, {{ lanes }}>;
$$ endif

// One {{ "workgroup" if lanes > 1 else "invocation" }} per output.
@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let thread = thread_index(id, groups);
    let busy = thread < p.threads;
    let lane = thread % LANES;
    let i = select(0u, thread / LANES, busy);
    let first = first_of(i);
    let end = p.outer * p.inner;
$$ if name in ("amax", "amin")
    let neutral = {{ number }}(x[first]);
$$ else
    let neutral = {{ number }}({{ 1 if name == "prod" else 0 }});
$$ endif
    var total = neutral;
    for (var block = lane; block < end; block += BLOCK) {
        var part = neutral;
        for (var e = block; e < min(block + BLOCK, end); e += LANES) {
            part = combined(part, {{ number }}(x[element_of(first, e)]));
        }
        total = combined(total, part);
    }
$$ if lanes > 1
    by_lane[lane] = total;
    for (var half = p.lanes / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lane < half) {
            by_lane[lane] = combined(by_lane[lane], by_lane[lane + half]);
        }
    }
    total = by_lane[0];  // of use to lane 0, which has written it
$$ endif
$$ if name == "mean"
    total /= p.divisor;
$$ endif
    if (busy && lane == 0u) {
        y[i] = {{ result }}(total);
    }
}
