{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ from "walk.wgsl" import operand_positions $}
{$ from "types.wgsl" import converted, saved, stored $}

@group(1) @binding(0) var<storage, read> a_data: array<{{ stored(source) }}>;
@group(1) @binding(1) var<storage, read_write> y: array<{{ stored(target) }}>;

// Floats become integers by dropping the fraction, as in PyTorch.
$$ call per_thread()
{{ operand_positions(["a"], flat) }}
    y[i] = {{ saved(converted("a_data[ai]", source, target), target) }};
$$ endcall
