{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ from "types.wgsl" import number_type, saved, stored $}
{$ set number = number_type(type) $}

var<storage> y: array<{{ stored(type) }}>;

$$ call per_thread()
    let start = bitcast<{{ number }}>(live(p.start));
    let step = bitcast<{{ number }}>(live(p.step));
    y[i] = {{ saved("start + " ~ number ~ "(i) * step", type) }};
$$ endcall
