{# Reductions over the `lanes` invocations that share a row: 1, or the whole workgroup. `subgroups`: of any width, they
   combine values first, and workgroup memory only combines theirs. #}
$$ if lanes > 1
var<workgroup> by_lane: array<f32, {{ lanes }}>;

$$ if subgroups
var<private> subgroup_lanes: u32;

$$ for name, function, combined in (("sum", "subgroupAdd", "result + by_lane[part]"), ("highest", "subgroupMax", "max(result, by_lane[part])"))
fn {{ name }}_over_lanes(lane: u32, value: f32) -> f32 {
    let own = {{ function }}(value);
    let shift = countTrailingZeros(subgroup_lanes);  // widths are powers of two: divisions take many instructions
    workgroupBarrier();
    if ((lane & (subgroup_lanes - 1u)) == 0u) {
        by_lane[lane >> shift] = own;
    }
    workgroupBarrier();
    var result = by_lane[0];
    for (var part = 1u; part < (p.lanes >> shift); part++) {
        result = {{ combined }};
    }
    return result;
}

$$ endfor
$$ else
fn sum_over_lanes(lane: u32, value: f32) -> f32 {
    workgroupBarrier();
    by_lane[lane] = value;
    for (var half = p.lanes / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lane < half) {
            by_lane[lane] += by_lane[lane + half];
        }
    }
    workgroupBarrier();
    return by_lane[0];
}

fn highest_over_lanes(lane: u32, value: f32) -> f32 {
    workgroupBarrier();
    by_lane[lane] = value;
    for (var half = p.lanes / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lane < half) {
            by_lane[lane] = max(by_lane[lane], by_lane[lane + half]);
        }
    }
    workgroupBarrier();
    return by_lane[0];
}
$$ endif
$$ else
fn sum_over_lanes(lane: u32, value: f32) -> f32 {
    return value;
}

fn highest_over_lanes(lane: u32, value: f32) -> f32 {
    return value;
}
$$ endif
