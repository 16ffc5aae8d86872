{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ from "walk.wgsl" import walk $}

var<storage> x: array<{{ word }}>;
var<storage> index: array<i32>;
var<storage> y: array<{{ word }}>;

// Counted from the end if negative.
fn place(which: u32) -> i32 {
    let at = index[which];
    return select(at, at + i32(p.size), at < 0);
}

$$ call per_thread()
    var target_at = 0u;
    var which = 0u;
    var source = 0u;
{{ walk({"target_at": "strides", "which": "index_strides", "source": "value_strides"}) }}
    let at = place(which);
    if (at < 0 || at >= i32(p.size)) {
        return;
    }
    for (var later = which + 1u; later < p.count; later++) {
        if (place(later) == at) {
            return;
        }
    }
    y[target_at + u32(at) * p.scale] = x[source];
$$ endcall
