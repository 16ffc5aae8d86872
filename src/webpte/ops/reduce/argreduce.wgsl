{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import rows_main $}
{$ set number = "f32" if type in ("f16", "f16w") else type $}

var<storage> x: array<{{ type }}>;
$$ if with_values
var<storage> values: array<{{ type }}>;
$$ endif
var<storage> indices: array<i32>;
{$ include "extreme.wgsl" $}
$$ if lanes > 1
{$ include "lanes.wgsl" $}
{$ include "best.wgsl" $}
$$ endif

// One {{ "workgroup" if lanes > 1 else "invocation" }} per output.
$$ call rows_main(subgroups)
    let thread = thread_index(id, groups);
    let busy = thread < p.threads;
    let lane = thread % {{ lanes }}u;
    let i = select(0u, thread / {{ lanes }}u, busy);
    let first = (i / p.inner) * p.inner * p.size + i % p.inner;
    var at = min(lane, p.size - 1u);
    var best = {{ number }}(x[first + at * p.inner]);
    for (var k = lane + {{ lanes }}u; k < p.size; k += {{ lanes }}u) {
        let v = {{ number }}(x[first + k * p.inner]);
        if (beats(v, best)) {
            best = v;
            at = k;
        }
    }
$$ if lanes > 1
    at = best_over_lanes(lane, key_of(best), at).y;
$$ endif
    if (busy && lane == 0u) {
        indices[i] = i32(at);
$$ if with_values
        values[i] = x[first + at * p.inner];
$$ endif
    }
$$ endcall
