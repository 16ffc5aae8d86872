{# Macros for the kernels of matrix products: invocations or workgroups own `rows` by `columns` results, from
   `row` and `column` on. Tails clamp their reads and skip their writes. #}
{# Declare n0, n1, ...: the columns to read. #}
{$ macro clamped_columns(columns) $}
$$ for c in range(columns)
    let n{{ c }} = min(column + {{ c }}u, p.columns - 1u);
$$ endfor
{$ endmacro $}
{# Repeat the caller's block, of (v, r, c), for each result of each weight. #}
{$ macro each_result(weights, rows, columns) $}
{$ for v in range(weights) $}{$ for r in range(rows) $}{$ for c in range(columns) $}
{{ caller(v, r, c) -}}
{$ endfor $}{$ endfor $}{$ endfor $}
{$ endmacro $}
{# Call put with these arguments, in r and c, and each result of every product. The caller's block is the expression of
   result (v, r, c). The bounds are uniforms: the compiler would unroll literal ones, and write the stores out once for each
   result. #}
{$ macro put_results(rows, columns, arguments, products=1) $}
$$ for v in range(products)
    var results{{ v }}: array<f32, {{ rows * columns }}>;
$$ for r in range(rows)
$$ for c in range(columns)
    results{{ v }}[{{ r * columns + c }}] = {{ caller(v, r, c) | trim }};
$$ endfor
$$ endfor
$$ endfor
    for (var r = 0u; r < min(p.tile_rows, p.rows - row); r++) {
        for (var c = 0u; c < p.tile_columns && column + c < p.columns; c++) {
            put({{ arguments }}{$ for v in range(products) $}, results{{ v }}[r * {{ columns }}u + c]{$ endfor $});
        }
    }
{$ endmacro $}
{# Declare `size` rows, or columns, of `quads` vectors along K each in workgroup memory, for `each` of them to an
   invocation. Quad q of row n is name[q][n / side][n % side ^ q * swizzle], with side = size / each: n / side is a constant
   where the products are added, which costs no check of an index. The quads of a row begin in different banks, and so do
   neighbouring rows, if swizzle is side / quads. #}
{$ macro quad_tile(name, size, quads, each=4) -$}
var<workgroup> {{ name }}: array<array<array<vec4<f32>, {{ size // each }}>, {{ each }}>, {{ quads }}>;
{$- endmacro $}
{# Declare the sums of an invocation: sum0_0 has row 0 and the columns 0 to 3. #}
{$ macro quad_sums(rows=4, columns=4) $}
$$ for r in range(rows)
$$ for q in range(columns // 4)
    var sum{{ r }}_{{ q }} = vec4<f32>();
$$ endfor
$$ endfor
{$ endmacro $}
{# Add to the sums the products of `steps` quads of two tiles: of the rows from `below` on with the columns from `right` on.
   Products are added one by one, which is one instruction for each. #}
{$ macro add_quads(a, b, steps, swizzle=1, rows=4, columns=4) $}
        for (var k = 0u; k < {{ steps }}; k++) {
            let swizzle = k{{ " * %du" % swizzle if swizzle > 1 }};
$$ for c in range(columns)
            let b{{ c }} = {{ b }}[k][{{ c }}][right ^ swizzle];
$$ endfor
$$ for r in range(rows)
            let a{{ r }} = {{ a }}[k][{{ r }}][below ^ swizzle];
$$ for i in range(4)
$$ for q in range(columns // 4)
            sum{{ r }}_{{ q }} += a{{ r }}[{{ i }}] * vec4<f32>(b{{ 4 * q }}[{{ i }}], b{{ 4 * q + 1 }}[{{ i }}], b{{ 4 * q + 2 }}[{{ i }}], b{{ 4 * q + 3 }}[{{ i }}]);
$$ endfor
$$ endfor
$$ endfor
        }
{$ endmacro $}
