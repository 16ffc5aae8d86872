{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ from "types.wgsl" import number_type, saved, stored $}
{$ set number = number_type(type) $}

@group(1) @binding(0) var<storage, read_write> y: array<{{ stored(type) }}>;

$$ call per_thread()
    let start = bitcast<{{ number }}>(live(p.start));
    let step = bitcast<{{ number }}>(live(p.step));
    y[i] = {{ saved("start + " ~ number ~ "(i) * step", type) }};
$$ endcall
