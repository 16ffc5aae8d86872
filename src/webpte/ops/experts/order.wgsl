{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_workgroup $}

var<storage> ids: array<i32>;  // the expert of each pair
var<storage> order: array<i32>;  // the expert of each tile, then {{ tile }} pairs for each; -1: none

var<workgroup> tile_counts: array<u32, {{ experts }}>;

// One workgroup: an invocation collects the pairs of an expert, in their order.
$$ call per_workgroup()
    for (var e = local; e < {{ experts }}u; e += wg) {
        var count = 0u;
        for (var pair = 0u; pair < p.pairs; pair++) {
            count += u32(u32(ids[pair]) == e);
        }
        tile_counts[e] = (count + {{ tile - 1 }}u) / {{ tile }}u;
    }
    workgroupBarrier();
    for (var e = local; e < {{ experts }}u; e += wg) {
        var tile = 0u;
        for (var before = 0u; before < e; before++) {
            tile += tile_counts[before];
        }
        let end = tile + tile_counts[e];
        var place = tile * {{ tile }}u;
        for (var pair = 0u; pair < p.pairs; pair++) {
            if (u32(ids[pair]) == e) {
                order[p.tiles + place] = i32(pair);
                place++;
            }
        }
        for (; place < end * {{ tile }}u; place++) {
            order[p.tiles + place] = -1;
        }
        for (; tile < end; tile++) {
            order[tile] = i32(e);
        }
        if (e == {{ experts - 1 }}u) {
            for (; tile < p.tiles; tile++) {
                order[tile] = {{ experts }};
            }
        }
    }
$$ endcall
