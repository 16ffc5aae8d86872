{$ include "kernel.wgsl" $}
{$ set number = "f32" if result == "f16" else result $}
{$ set largest = name == "amax" $}

@group(1) @binding(0) var<storage, read> x: array<{{ source }}>;
@group(1) @binding(1) var<storage, read_write> y: array<{{ result }}>;

{$ include "reduce_walk.wgsl" $}
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

// One invocation per output.
@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = thread_index(id, groups);
    if (i >= p.threads) {
        return;
    }
    let first = first_of(i);
$$ if name in ("amax", "amin")
    let neutral = {{ number }}(x[first]);
$$ else
    let neutral = {{ number }}({{ 1 if name == "prod" else 0 }});
$$ endif
    var total = neutral;
    for (var o = 0u; o < p.outer; o++) {
        let run = first + run_of(o);
        // Partial results of bounded length keep the rounding error of long sums small.
        for (var block = 0u; block < p.inner; block += 256u) {
            let end = min(block + 256u, p.inner);
            var part = neutral;
            for (var k = block; k < end; k++) {
                part = combined(part, {{ number }}(x[run + k * p.inner_stride]));
            }
            total = combined(total, part);
        }
    }
$$ if name == "mean"
    total /= p.divisor;
$$ endif
    y[i] = {{ result }}(total);
}
