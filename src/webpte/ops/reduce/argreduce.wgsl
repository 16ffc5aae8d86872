{$ include "kernel.wgsl" $}
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

var<workgroup> best_by_lane: array<{{ number }}, {{ lanes }}>;
var<workgroup> at_by_lane: array<u32, {{ lanes }}>;
$$ endif

// One {{ "workgroup" if lanes > 1 else "invocation" }} per output.
@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
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
    best_by_lane[lane] = best;
    at_by_lane[lane] = at;
    for (var half = p.lanes / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lane < half) {
            let other = best_by_lane[lane + half];
            let other_at = at_by_lane[lane + half];
            // The first of equals: of those that neither beats the other.
            let equal = !beats(other, best) && !beats(best, other);
            if (beats(other, best) || (equal && other_at < at)) {
                best = other;
                at = other_at;
                best_by_lane[lane] = best;
                at_by_lane[lane] = at;
            }
        }
    }
$$ endif
    if (busy && lane == 0u) {
        indices[i] = i32(at);
$$ if with_values
        values[i] = {{ type }}(best);
$$ endif
    }
}
