{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import rows_main $}
{$ include "loads.wgsl" $}
{$ include "lanes.wgsl" $}
{$ from "loads.wgsl" import array_of, loaded, storable $}
const LANES = {{ lanes }}u;

var<storage> x: {{ array_of(type) }};  // (rows, K)
var<storage> a: {{ array_of(matrix_type) }};  // (N, K, R)
var<storage> adapters: array<i32>;  // (rows,), 0: none
var<storage> y: {{ array_of(out_type) }};  // (rows, R)

// The invocations of a row make four neighbors together. All reach the end, because they share sums.
$$ call rows_main(subgroups)
    let i = thread_index(id, groups);
    let lane = i % LANES;
    let quad = i / LANES;
    let row = quad / p.rank;
    let adapter = select(0, adapters[row], i < p.threads);
    let steps = select(0u, p.steps, adapter > 0);
    let start = row * p.steps;
    let first = u32(max(adapter - 1, 0)) * p.steps * {{ wide }}u * p.rank + quad % p.rank;
    var sum = vec4<f32>();
    for (var k = lane; k < steps; k += LANES) {
        let v = {{ loaded("x[start + k]", type) }};
        let at = first + k * {{ wide }}u * p.rank;
$$ if wide == 4
$$ for part in range(4)
        sum += v[{{ part }}] * {{ loaded("a[at + " ~ part ~ "u * p.rank]", matrix_type) }};
$$ endfor
$$ else
        sum += v * {{ loaded("a[at]", matrix_type) }};
$$ endif
    }
    let total = vec4<f32>(
        sum_over_lanes(lane, sum.x), sum_over_lanes(lane, sum.y), sum_over_lanes(lane, sum.z), sum_over_lanes(lane, sum.w)
    );
    if (lane == 0u && i < p.threads) {
        y[quad] = {{ storable("total", out_type) }};
    }
$$ endcall
