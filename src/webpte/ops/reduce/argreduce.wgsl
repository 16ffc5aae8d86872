{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import rows_main $}
{$ set number = "f32" if type in ("f16", "f16w") else type $}

@group(1) @binding(0) var<storage, read> x: array<{{ type }}>;
$$ if with_values
@group(1) @binding(1) var<storage, read_write> values: array<{{ type }}>;
@group(1) @binding(2) var<storage, read_write> indices: array<i32>;
$$ else
@group(1) @binding(1) var<storage, read_write> indices: array<i32>;
$$ endif

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
