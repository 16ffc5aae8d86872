{$ from "walk.wgsl" import walk $}
// Return where the elements that output `i` reduces start.
fn first_of(i: u32) -> u32 {
    var position = 0u;
{{ walk({"position": "strides"}) }}
    return position;
}

// Return where run `o` of them starts; a run is p.inner elements, p.inner_stride apart.
fn run_of(o: u32) -> u32 {
    var position = 0u;
{{ walk({"position": "outer_strides"}, "o", of="outer_") }}
    return position;
}
