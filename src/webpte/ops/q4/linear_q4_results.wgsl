{# The end of a kernel whose invocations own `tile` rows from `row` by `columns` columns from `column`, as sums. #}
    var results: array<f32, {{ tile * columns }}>;
$$ for r in range(tile)
$$ for c in range(columns)
$$ if weights == 2
    results[{{ r * columns + c }}] = gated(sum0_{{ r }}_{{ c }}, sum1_{{ r }}_{{ c }});
$$ else
    results[{{ r * columns + c }}] = sum0_{{ r }}_{{ c }};
$$ endif
$$ endfor
$$ endfor
    // Bounds that the compiler does not know: it would write the stores out, once for each result.
    for (var r = 0u; r < min(p.tile, p.rows - row); r++) {
        for (var c = 0u; c < p.tile_columns && column + c < p.columns; c++) {
            put(row + r, p.first + column + c, results[r * {{ columns }}u + c]);
        }
    }
