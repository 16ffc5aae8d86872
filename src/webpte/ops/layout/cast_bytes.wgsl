{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ include "bytes.wgsl" $}
{$ from "types.wgsl" import converted, saved, stored $}
{$ set bytes = ("i8", "u8") $}

var<storage> x: array<{{ "u32" if source in bytes else stored(source) }}>;
var<storage> y: array<{{ "u32" if target in bytes else stored(target) }}>;

// Four neighbours per invocation, which are a word where they are bytes. Integers lose their upper bits, as in PyTorch.
$$ call per_thread("t")
    let count = min(p.count - t * 4u, 4u);
$$ if target in bytes
    var codes = vec4<i32>();
$$ endif
    for (var k = 0u; k < count; k++) {
$$ if source in bytes
        let number = i32(extractBits({{ "bitcast<i32>(x[t])" if source == "i8" else "x[t]" }}, k * 8u, 8u));
$$ else
        let number = x[t * 4u + k];
$$ endif
$$ if target in bytes
        codes[k] = i32(number);
$$ else
        y[t * 4u + k] = {{ saved(converted("number", "i32", target), target) }};
$$ endif
    }
$$ if target in bytes
    y[t] = word_of(codes, count);
$$ endif
$$ endcall
