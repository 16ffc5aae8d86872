{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ from "walk.wgsl" import walk $}
{$ include "choice.wgsl" $}

@group(1) @binding(0) var<storage, read> index: array<i32>;
@group(1) @binding(1) var<storage, read_write> offsets: array<i32>;

$$ call per_thread()
    var which = 0u;
{{ walk({"which": "strides"}) }}
    let offset = i32(choice(index[which], p.size) * p.scale);
$$ if first
    offsets[i] = offset;
$$ else
    offsets[i] += offset;
$$ endif
$$ endcall
