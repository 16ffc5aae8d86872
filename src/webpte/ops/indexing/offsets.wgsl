{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ from "walk.wgsl" import walk $}
{$ include "choice.wgsl" $}

var<storage> index: array<i32>;
var<storage> offsets: array<i32>;

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
