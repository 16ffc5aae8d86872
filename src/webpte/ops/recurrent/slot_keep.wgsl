{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ include "loads.wgsl" $}
{$ from "loads.wgsl" import array_of $}

var<storage> x: {{ array_of(type) }};
var<storage> slot_mapping: array<vec2<i32>>;  // slot and position of each row
var<storage> state: {{ array_of(type) }};

// One invocation per load of the rows: (R, N / 4). Of the rows that have the same place in a slot the last is kept.
$$ call per_thread()
    let column = i % p.columns;
    let row = i / p.columns;
    let place = slot_mapping[row];
    let later = row + p.kept;
    if (u32(place.x) >= p.slots || (later < p.rows && slot_mapping[min(later, p.rows - 1u)].x == place.x)) {
        return;
    }
    let position = u32(place.y + live(p.start));
    state[((p.first + u32(place.x)) * p.kept + position % p.kept) * p.columns + column] = x[i];
$$ endcall
