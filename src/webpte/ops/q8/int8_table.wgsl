{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ include "bytes.wgsl" $}

var<storage> x: array<u32>;
var<storage> table: array<u32>;
var<storage> y: array<u32>;

fn looked_up(code: u32) -> i32 {
    return bitcast<i32>(table[code >> 2u] >> ((code & 3u) * 8u));
}

$$ call per_thread("t")
    let codes = (vec4<u32>(x[t]) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(255u);
    let results = vec4<i32>(looked_up(codes.x), looked_up(codes.y), looked_up(codes.z), looked_up(codes.w));
    y[t] = word_of(results, min(p.count - t * 4u, 4u));
$$ endcall
