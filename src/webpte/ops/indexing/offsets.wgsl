{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ include "choice.wgsl" $}

@group(1) @binding(0) var<storage, read> index: array<i32>;
@group(1) @binding(1) var<storage, read_write> offsets: array<i32>;

$$ call per_thread()
    var which = 0u;
    var rest = i;
    for (var d = p.rank; d > 0u; d--) {
        let k = d - 1u;
        let size = p.dims[k >> 2u][k & 3u];
        which += (rest % size) * p.strides[k >> 2u][k & 3u];
        rest /= size;
    }
    let offset = i32(choice(index[which], p.size) * p.scale);
$$ if first
    offsets[i] = offset;
$$ else
    offsets[i] += offset;
$$ endif
$$ endcall
