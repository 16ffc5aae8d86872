{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import rows_main $}
{$ include "loads.wgsl" $}
{$ include "rows.wgsl" $}
{$ include "floats.wgsl" $}
{$ from "loads.wgsl" import array_of, loaded, storable $}
{$ set number = "vec4<f32>" if wide == 4 else "f32" $}
{$ set words = "vec4<u32>" if wide == 4 else "u32" $}

var<storage> x: {{ array_of(source) }};
var<storage> y: {{ array_of(result) }};

const NONE = -1e30;  // the addend of an element that makes the result of its row NaN

// WGSL need not have infinities: beyond the finite values an element counts as the last of them.
fn load(i: u32) -> {{ number }} {
    return clamp({{ loaded("x[i]", source) }}, {{ number }}(-3.4028234e38), {{ number }}(3.4028234e38));
}

// e^v for v <= 0; below -104 it is 0 in f32, and the difference of two extremes may have overflowed.
fn power(v: {{ number }}) -> {{ number }} {
    return exp(max(v, {{ number }}(-104.0)));
}

// Return the addend of an element. A row of minus infinities sums to 0, one with NaN or infinity to less.
fn share(i: u32, highest: f32) -> {{ number }} {
    let bits = bitcast<{{ words }}>({{ loaded("x[i]", source) }});
    let beyond = (bits & {{ words }}(0x7fffffffu)) >= {{ words }}(0x7f800000u);
    let hidden = bits == {{ words }}(0xff800000u);
    let finite = power(load(i) - highest);
    return select(select(finite, {{ number }}(NONE), beyond), {{ number }}(), hidden);
}

$$ call rows_main(subgroups)
    let i = thread_index(id, groups);
    let lane = i % LANES;
    let row = i / LANES;
    let size = select(0u, p.size, i < p.threads);
    let start = (row / p.inner) * p.inner * p.size + row % p.inner;
    var own = {{ number }}(-3.4028234e38);
    for (var k = lane; k < size; k += LANES) {
        own = max(own, load(start + k * p.inner));
    }
    let highest = highest_over_lanes(lane, {{ "max(max(own.x, own.y), max(own.z, own.w))" if wide == 4 else "own" }});
    var sum = {{ number }}();
    for (var block = lane; block < size; block += BLOCK) {
        var part = {{ number }}();
        for (var k = block; k < min(block + BLOCK, size); k += LANES) {
            part += share(start + k * p.inner, highest);
        }
        sum += part;
    }
    let whole = sum_over_lanes(lane, total(sum));
    for (var k = lane; k < size; k += LANES) {
        let at = start + k * p.inner;
$$ if log
        let answer = {{ loaded("x[at]", source) }} - highest - log(max(whole, 0.5));
$$ else
        let answer = share(at, highest) / max(whole, 0.5);
$$ endif
        let v = select(answer, {{ number }}(nan_like(whole)), whole <= 0.0);
        y[at] = {{ storable("v", result) }};
    }
$$ endcall
