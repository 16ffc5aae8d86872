{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ set element = word if width == 1 else "vec4<" ~ word ~ ">" $}

@group(1) @binding(0) var<storage, read> x: array<{{ element }}>;
@group(1) @binding(1) var<storage, read_write> y: array<{{ element }}>;

$$ call per_thread()
    var source = u32(live(p.start)) * p.step;
    var rest = i;
    for (var d = p.rank; d > 0u; d--) {
        let k = d - 1u;
        let size = p.dims[k >> 2u][k & 3u];
        source += (rest % size) * p.strides[k >> 2u][k & 3u];
        rest /= size;
    }
    y[i] = x[source];
$$ endcall
