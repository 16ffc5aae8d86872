{# For kernels whose rows are shared by `lanes` invocations each: 1, or the whole workgroup. #}
const LANES = {{ lanes }}u;
const BLOCK = {{ 256 * lanes }}u;  // partial sums of bounded length keep the rounding error of long rows small

fn total(v: {{ "vec4<f32>" if wide == 4 else "f32" }}) -> f32 {
    return {{ "v.x + v.y + v.z + v.w" if wide == 4 else "v" }};
}

{$ include "lanes.wgsl" $}
