{# How attention reads keys and values, as f32 or vec4<f32>: load d of the row of one head's elements that begins at load
   `first`. All kernels read through these functions, so that another format of the caches is one change. #}
{$ from "loads.wgsl" import loaded $}
{$ set cache_type = "vec4<f32>" if cache.endswith("x4") else "f32" $}
$$ if cache == "i8x4"
// A row of int8 ends with its largest absolute element, which the codes are relative to.
fn load_key(first: u32, d: u32) -> vec4<f32> {
    let row = first + first / {{ key_steps }}u;
    return unpack4x8snorm(keys[row + d]) * bitcast<f32>(keys[row + {{ key_steps }}u]);
}

fn load_value(first: u32, d: u32) -> vec4<f32> {
    let row = first + first / {{ value_steps }}u;
    return unpack4x8snorm(values[row + d]) * bitcast<f32>(values[row + {{ value_steps }}u]);
}
$$ else
fn load_key(first: u32, d: u32) -> {{ cache_type }} {
    return {{ loaded("keys[first + d]", cache) }};
}

fn load_value(first: u32, d: u32) -> {{ cache_type }} {
    return {{ loaded("values[first + d]", cache) }};
}
$$ endif
