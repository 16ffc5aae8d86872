{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ include "choice.wgsl" $}

@group(1) @binding(0) var<storage, read> x: array<{{ word }}>;
@group(1) @binding(1) var<storage, read> index: array<i32>;
@group(1) @binding(2) var<storage, read_write> y: array<{{ word }}>;

$$ call per_thread()
    var source = 0u;
    var which = 0u;
    var rest = i;
    for (var d = p.rank; d > 0u; d--) {
        let k = d - 1u;
        let size = p.dims[k >> 2u][k & 3u];
        let at = rest % size;
        rest /= size;
        source += at * p.strides[k >> 2u][k & 3u];
        which += at * p.index_strides[k >> 2u][k & 3u];
    }
    y[i] = x[source + choice(index[which], p.size) * p.scale];
$$ endcall
