{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}

@group(1) @binding(0) var<storage, read> x: array<{{ word }}>;
@group(1) @binding(1) var<storage, read_write> y: array<{{ word }}>;

$$ call per_thread()
    var source = 0u;
    var inside = true;
    var rest = i;
    for (var d = p.rank; d > 0u; d--) {
        let k = d - 1u;
        let size = p.dims[k >> 2u][k & 3u];
        // A position before the first wraps around to a huge one: one comparison tests both ends.
        let at = rest % size + p.shifts[k >> 2u][k & 3u];
        rest /= size;
        inside = inside && at < p.sizes[k >> 2u][k & 3u];
        source += at * p.strides[k >> 2u][k & 3u];
    }
    if (inside) {
        y[i] = x[source];
    } else {
$$ if word == "f16"
        y[i] = f16(unpack2x16float(p.value).x);
$$ else
        y[i] = p.value;
$$ endif
    }
$$ endcall
