{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import rows_main $}
{$ include "loads.wgsl" $}
{$ include "rows.wgsl" $}
{$ from "loads.wgsl" import array_of, loaded, storable $}

var<storage> x: {{ array_of(type) }};
var<storage> weight: {{ array_of(weight_type) }};
$$ if residual_type is defined
var<storage> residual: {{ array_of(residual_type) }};
$$ endif
var<storage> y: {{ array_of(type) }};

$$ call rows_main(subgroups)
    let i = thread_index(id, groups);
    let lane = i % LANES;
    let steps = select(0u, p.steps, i < p.threads);
    let start = i / LANES * p.steps;
    var sum = {{ "vec4<f32>()" if wide == 4 else "0.0" }};
    for (var k = lane; k < steps; k += LANES) {
        let v = {{ loaded("x[start + k]", type) }};
        sum += v * v;
    }
    let scale = inverseSqrt(sum_over_lanes(lane, total(sum)) / p.columns + p.eps);
    for (var k = lane; k < steps; k += LANES) {
        let v = {{ loaded("x[start + k]", type) }} * scale * {{ loaded("weight[k]", weight_type) }}{{ " + " ~ loaded("residual[start + k]", residual_type) if residual_type is defined }};
        y[start + k] = {{ storable("v", type) }};
    }
$$ endcall
