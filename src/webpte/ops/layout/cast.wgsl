{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ from "walk.wgsl" import operand_positions $}
{$ from "types.wgsl" import converted, saved, stored $}

var<storage> a_data: array<{{ stored(source) }}>;
var<storage> y: array<{{ stored(target) }}>;

// Floats become integers by dropping the fraction, as in PyTorch.
$$ call per_thread()
{{ operand_positions(["a"], flat) }}
    y[i] = {{ saved(converted("a_data[ai]", source, target), target) }};
$$ endcall
