{# How attention reads keys and values, as f32 or vec4<f32>: load d of the row of one head's elements that begins at load
   `first`. All kernels read through these functions, so that another format of the caches is one change. #}
{$ from "loads.wgsl" import loaded $}
{$ set cache_type = "vec4<f32>" if cache.endswith("x4") else "f32" $}
fn load_key(first: u32, d: u32) -> {{ cache_type }} {
    return {{ loaded("keys[first + d]", cache) }};
}

fn load_value(first: u32, d: u32) -> {{ cache_type }} {
    return {{ loaded("values[first + d]", cache) }};
}
