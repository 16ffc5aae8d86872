{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ include "loads.wgsl" $}
{$ from "loads.wgsl" import array_of, loaded, storable $}
$$ if silu
{$ include "elementwise/logistic.wgsl" $}
$$ endif

var<storage> x: {{ array_of(type) }};
var<storage> weight: {{ array_of(type) }};
var<storage> slot_mapping: array<vec2<i32>>;  // slot and position of each row
var<storage> state: {{ array_of(type) }};
var<storage> y: {{ array_of(type) }};

const TAPS = {{ taps }}u;

// One invocation per load of the rows: (R, N / 4). The sum begins with the earliest row, wherever that is read.
$$ call per_thread()
    let column = i % p.columns;
    let row = i / p.columns;
    let place = slot_mapping[row];
    let position = u32(place.y + live(p.start));
    if (u32(place.x) >= p.slots) {
        return;  // an idle row: as u32, a negative number exceeds the bound too
    }
    let first = (p.first + u32(place.x)) * p.kept;
    var sum = {{ "vec4<f32>()" if wide == 4 else "0.0" }};
    for (var tap = 0u; tap < TAPS; tap++) {
        let back = TAPS - 1u - tap;
        if (back > position) {
            continue;  // before the beginning of the sequence
        }
        var before = {{ "vec4<f32>()" if wide == 4 else "0.0" }};
        if (back <= row && slot_mapping[row - min(back, row)].x == place.x) {
            before = {{ loaded("x[(row - back) * p.columns + column]", type) }};
        } else {
            before = {{ loaded("state[(first + (position - back) % p.kept) * p.columns + column]", type) }};
        }
        sum = fma({{ loaded("weight[tap * p.columns + column]", type) }}, before, sum);
    }
$$ if silu and wide == 4
    sum *= vec4<f32>(logistic(sum.x), logistic(sum.y), logistic(sum.z), logistic(sum.w));
$$ elif silu
    sum *= logistic(sum);
$$ endif
    y[i] = {{ storable("sum", type) }};
$$ if keeps
    state[(first + position % p.kept) * p.columns + column] = x[i];
$$ endif
$$ endcall
