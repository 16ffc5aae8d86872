{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}

var<storage> logits: array<{{ type }}>;  // (M, V)
var<storage> labels: array<i32>;  // (M,)
var<storage> losses: array<f32>;  // (M,)
var<storage> d_logits: array<{{ type }}>;  // (M, V)

{$ include "floats.wgsl" $}

const NONE = -1e30;  // the addend of an element that makes the result of its row NaN

// Beyond the finite values an element counts as the last of them.
fn load(i: u32) -> f32 {
    return clamp(f32(logits[i]), -3.4028234e38, 3.4028234e38);
}

// Return the addend of an element. A row of minus infinities sums to 0, one with NaN or infinity to less.
fn share(i: u32, highest: f32) -> f32 {
    let v = f32(logits[i]);
    if (is_nan(v) || is_infinite(v)) {
        return select(NONE, 0.0, order_key(v) < 0 && !is_nan(v));
    }
    return exp(max(v - highest, -104.0));  // below, it is 0 in f32
}

// One invocation per row. A row with a negative label does not count.
$$ call per_thread("row")
    let start = row * p.columns;
    let end = start + p.columns;
    if (labels[row] < 0) {
        losses[row] = 0.0;
        for (var i = start; i < end; i++) {
            d_logits[i] = {{ type }}(0.0);
        }
        return;
    }
    let label = start + min(u32(labels[row]), p.columns - 1u);
    var highest = -3.4028234e38;
    for (var i = start; i < end; i++) {
        highest = max(highest, load(i));
    }
    // Partial sums of bounded length keep the rounding error of long rows small.
    var sum = 0.0;
    for (var block = start; block < end; block += 256u) {
        let stop = min(block + 256u, end);
        var part = 0.0;
        for (var i = block; i < stop; i++) {
            part += share(i, highest);
        }
        sum += part;
    }
    let answered = sum > 0.0;
    let loss = (log(max(sum, 0.5)) + highest - f32(logits[label])) / p.count;
    losses[row] = select(nan_like(sum), loss, answered);
    for (var i = start; i < end; i++) {
        let d = (share(i, highest) / max(sum, 0.5) - f32(i == label)) / p.count;
        d_logits[i] = {{ type }}(select(nan_like(sum), d, answered));
    }
$$ endcall
