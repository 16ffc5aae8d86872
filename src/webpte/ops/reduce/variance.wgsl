{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import rows_main $}
{$ set wide = 1 $}
{$ include "rows.wgsl" $}

var<storage> x: array<{{ type }}>;
var<storage> y: array<{{ type }}>;

{$ include "reduce_walk.wgsl" $}

{$ include "reduce/reduce_element.wgsl" $}

// Return the sum of (v - shift), or of its square, over a lane's share of the elements that an output reduces.
fn sum_around(first: u32, lane: u32, shift: f32, squared: bool) -> f32 {
    let end = p.outer * p.inner;
    var sum = 0.0;
    for (var block = lane; block < end; block += BLOCK) {
        var part = 0.0;
        for (var e = block; e < min(block + BLOCK, end); e += LANES) {
            let v = f32(x[element_of(first, e)]) - shift;
            part += select(v, v * v, squared);
        }
        sum += part;
    }
    return sum;
}

// The mean first, then the squares around it, which loses no digits to cancellation.
$$ call rows_main(subgroups)
    let thread = thread_index(id, groups);
    let busy = thread < p.threads;
    let lane = thread % LANES;
    let i = select(0u, thread / LANES, busy);
    let first = first_of(i);
    let mean = sum_over_lanes(lane, sum_around(first, lane, 0.0, false)) / f32(p.outer * p.inner);
    let squares = sum_over_lanes(lane, sum_around(first, lane, mean, true));
    if (busy && lane == 0u) {
        y[i] = {{ type }}(squares / p.divisor);
    }
$$ endcall
