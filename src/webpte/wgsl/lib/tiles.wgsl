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
{# Call put with these arguments, in r and c, and each result. The caller's block is the expression of result (r, c). The
   bounds are uniforms: the compiler would unroll literal ones, and write the stores out once for each result. #}
{$ macro put_results(rows, columns, arguments) $}
    var results: array<f32, {{ rows * columns }}>;
$$ for r in range(rows)
$$ for c in range(columns)
    results[{{ r * columns + c }}] = {{ caller(r, c) | trim }};
$$ endfor
$$ endfor
    for (var r = 0u; r < min(p.tile_rows, p.rows - row); r++) {
        for (var c = 0u; c < p.tile_columns && column + c < p.columns; c++) {
            put({{ arguments }}, results[r * {{ columns }}u + c]);
        }
    }
{$ endmacro $}
