{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ from "walk.wgsl" import operand_positions $}
{$ set numbers = ["p.first", "p.second"] $}
{$ set layouts = ["a", "b"] $}
{$ set operands = [a_type, b_type] $}

$$ for type in operands
$$ if type
var<storage> {{ layouts[loop.index0] }}_data: array<{{ type }}>;
$$ endif
$$ endfor
var<storage> y: array<i32>;

// A number of 64 bits.
struct Wide {
    high: i32,
    low: u32,
}

fn fits(x: Wide) -> bool {
    return x.high == (bitcast<i32>(x.low) >> 31u);
}

// Return a * b, computed by halves as if both were unsigned. Negative factors add to the high word: that is subtracted.
fn product(a: i32, b: i32) -> Wide {
    let x = bitcast<u32>(a);
    let y = bitcast<u32>(b);
    let low = (x & 0xffffu) * (y & 0xffffu);
    let left = (x >> 16u) * (y & 0xffffu) + (low >> 16u);
    let right = (x & 0xffffu) * (y >> 16u) + (left & 0xffffu);
    let high = (x >> 16u) * (y >> 16u) + (left >> 16u) + (right >> 16u);
    return Wide(bitcast<i32>(high) - select(0, b, a < 0) - select(0, a, b < 0), x * y);
}

fn sum(a: i32, b: Wide) -> Wide {
    let low = b.low + bitcast<u32>(a);
    return Wide(b.high + (a >> 31u) + i32(low < b.low), low);
}

$$ if kind == "cast"
// By bits: shaders need not distinguish NaN from numbers. -2147483648 is the one float of that size that fits. Infinities
// and NaN do not count: they have no integer in the model either. T5 converts log(0), and does not use the result.
fn overflows(a: f32, b: i32) -> bool {
    let bits = bitcast<u32>(a);
    let size = bits & 0x7fffffffu;
    return size >= 0x4f000000u && size < 0x7f800000u && bits != 0xcf000000u;
}
$$ else
fn overflows(a: i32, b: i32) -> bool {
$$ if kind == "add"
    return !fits(sum(a, product(p.alpha, b)));
$$ elif kind == "mul"
    return !fits(product(a, b));
$$ elif kind == "div"
    return b == 0 || (b == -1 && a == i32(-2147483647 - 1));
$$ else
    if (b < 0 || (a >= -1 && a <= 1)) {
        return false;
    }
    var power = 1;
    for (var k = 0; k < b; k++) {
        let next = product(power, a);
        if (!fits(next)) {
            return true;
        }
        power = bitcast<i32>(next.low);
    }
    return false;
$$ endif
}
$$ endif

// Invocation t checks every p.threads-th element.
$$ call per_thread("t")
    var found = 0;
    for (var i = t; i < p.count; i += p.threads) {
{{ operand_positions(layouts) }}
$$ for type in operands
$$ set name = layouts[loop.index0]
$$ set number = "f32" if kind == "cast" and name == "a" else "i32"
        let {{ name }} = {{ number }}({{ name ~ "_data[" ~ name ~ "i]" if type else numbers[loop.index0] }});
$$ endfor
        found |= i32(overflows(a, b));
    }
    y[t] = found;
$$ endcall
