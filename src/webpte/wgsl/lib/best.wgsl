{# What lanes.wgsl is for sums, for the first of the best numbers of a row, which are of type `number`: the highest, or the
   lowest where not `largest`. Numbers are compared by their keys. The lowest index of equal keys wins. #}
fn key_of(v: {{ number }}) -> u32 {
    let bits = bitcast<u32>(v);
$$ if number == "f32"
    let key = select(bits | 0x80000000u, ~bits, bits > 0x80000000u);  // minus zero is zero
    return select({{ "key" if largest else "~key" }}, 0xffffffffu, (bits & 0x7fffffffu) > 0x7f800000u);  // NaN is the best
$$ elif number == "i32"
    return bits ^ {{ "0x80000000u" if largest else "0x7fffffffu" }};
$$ else
    return {{ "bits" if largest else "~bits" }};
$$ endif
}

$$ if number == "f32" and largest
fn value_of(key: u32) -> f32 {
    return bitcast<f32>(select(~key, key ^ 0x80000000u, key >= 0x80000000u));
}

$$ endif
$$ if lanes > 1
var<workgroup> best_by_lane: array<vec2<u32>, {{ lanes }}>;

fn better(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return select(a, b, b.x > a.x || (b.x == a.x && b.y < a.y));
}

$$ if subgroups
fn best_over_lanes(lane: u32, key: u32, index: u32) -> vec2<u32> {
    let own = subgroupMax(key);
    let first = subgroupMin(select(0xffffffffu, index, key == own));
    let shift = countTrailingZeros(subgroup_lanes);
    workgroupBarrier();
    if ((lane & (subgroup_lanes - 1u)) == 0u) {
        best_by_lane[lane >> shift] = vec2<u32>(own, first);
    }
    workgroupBarrier();
    var result = best_by_lane[0];
    for (var part = 1u; part < (p.lanes >> shift); part++) {
        result = better(result, best_by_lane[part]);
    }
    return result;
}
$$ else
fn best_over_lanes(lane: u32, key: u32, index: u32) -> vec2<u32> {
    workgroupBarrier();
    best_by_lane[lane] = vec2<u32>(key, index);
    for (var half = p.lanes / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lane < half) {
            best_by_lane[lane] = better(best_by_lane[lane], best_by_lane[lane + half]);
        }
    }
    workgroupBarrier();
    return best_by_lane[0];
}
$$ endif
$$ else
fn best_over_lanes(lane: u32, key: u32, index: u32) -> vec2<u32> {
    return vec2<u32>(key, index);
}
$$ endif
