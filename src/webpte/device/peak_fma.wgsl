{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}

var<storage> x: array<vec4<f32>>;
var<storage> y: array<vec4<f32>>;

// Eight sums that do not wait for one another.
$$ call per_thread()
    let scale = x[i];
    var a = scale;
    var b = scale + 1.0;
    var c = scale + 2.0;
    var d = scale + 3.0;
    var e = scale + 4.0;
    var f = scale + 5.0;
    var g = scale + 6.0;
    var h = scale + 7.0;
    for (var step = 0u; step < p.steps; step++) {
        a = a * scale + a;
        b = b * scale + b;
        c = c * scale + c;
        d = d * scale + d;
        e = e * scale + e;
        f = f * scale + f;
        g = g * scale + g;
        h = h * scale + h;
    }
    y[i] = a + b + c + d + e + f + g + h;
$$ endcall
