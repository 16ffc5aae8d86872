{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}

var<storage> y: array<{{ word }}>;

$$ call per_thread()
$$ if word == "f16"
    y[i] = f16(bitcast<f32>(live(p.value)));
$$ else
    y[i] = bitcast<u32>(live(p.value));
$$ endif
$$ endcall
