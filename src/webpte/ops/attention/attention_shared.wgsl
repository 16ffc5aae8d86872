{# Add up the keys from `begin` to `end`, in steps of `stride`, for some query heads of one token, by a workgroup with
   shared memory. It scores as many keys as fit. Then it adds up their values: COLUMNS invocations share a row, and the
   keys are divided into SLICES. With a window, keys before `oldest` weigh nothing; with `later`, nor does the token's
   own key, number `cached`.
   With `parts`, there is one query head. The same number of invocations scores TILE keys, and all loads of a step, also
   those of values, begin before the first barrier: a workgroup has a core for itself, so it waits once per step.
   Declare top, weight and the sums of a slice. #}
{$ set limited = window or later $}
{$ macro is_seen(number) -$}
{{ number ~ " >= oldest" if window }}{{ " && " if window and later }}{{ number ~ " != cached" if later }}
{$- endmacro $}
{# The number of an invocation among `count`, plus `more`, kept below the number of loads of a row. #}
{$ macro within(number, more, count, limit, loads) -$}
{$ set sum = number ~ " + %du" % more if more else number $}
{{- sum if more + count <= loads else "min(" ~ sum ~ ", " ~ limit ~ " - 1u)" }}
{$- endmacro $}
{$ set own_tiles = columns // parts $}{# tiles of a slice in a step #}
{# Higher than the score of a key that is not there: then its weight is zero, also before others. #}
    var top = {{ score }}({{ "0.9 * LOWEST" if parts > 1 else "LOWEST" }});
    var weight = {{ score }}();
$$ for h in range(heads)
$$ for w in range(wide)
    var sum{{ h }}_{{ w }} = vec4<f32>();
$$ endfor
$$ endfor
    for (var base = begin; base < end; base += stride) {
        let count = min(end - base, TILES * TILE);
$$ if parts > 1
        let part = lane % {{ parts }}u;
        let last_row = first + (base + count - 1u) * p.key_rows;
        let key_row = (first + (base + lane / {{ parts }}u * TILE) * p.key_rows) * KEY_STEPS;
$$ for t in range(tile)
        let key_row{{ t }} = min(key_row + {{ t }}u * p.key_rows * KEY_STEPS, last_row * KEY_STEPS);
$$ for n in range(loads)
        let key{{ t }}_{{ n }} = load_key(key_row{{ t }}, {{ within("part", n * parts, parts, "KEY_STEPS", key_steps) }});
$$ endfor
$$ endfor
$$ for i in range(own_tiles)
        let value_row{{ i }} = (first + (base + (slice + {{ i * slices }}u) * TILE) * p.key_rows) * VALUE_STEPS;
$$ for t in range(tile)
        let value_row{{ i }}_{{ t }} = min(value_row{{ i }} + {{ t }}u * p.key_rows * VALUE_STEPS, last_row * VALUE_STEPS);
$$ for w in range(wide)
        let value{{ i }}_{{ t }}_{{ w }} = load_value(value_row{{ i }}_{{ t }}, {{ within("column", w * columns, columns, "VALUE_STEPS", value_steps) }});
$$ endfor
$$ endfor
$$ endfor
$$ for t in range(tile)
        var score{{ t }} = 0.0;
$$ endfor
$$ for n in range(loads)
{$ set query = "queries[" ~ within("part", n * parts, parts, "KEY_STEPS", key_steps) ~ "]" $}
        let query{{ n }} = {{ query if (n + 1) * parts <= key_steps else "select(vec4<f32>(), %s, part + %du < KEY_STEPS)" % (query, n * parts) }};
$$ for t in range(tile)
        score{{ t }} = plus_product(score{{ t }}, query{{ n }}, key{{ t }}_{{ n }});
$$ endfor
$$ endfor
$$ for t in range(tile)
        products[{{ t }}u * TILES + lane / {{ parts }}u][part] = score{{ t }};
$$ endfor
        workgroupBarrier();
        if (lane < TILES * TILE) {
            var whole = 0.0;
            for (var i = 0u; i < {{ parts }}u; i++) {
                whole += products[lane][i];
            }
            let key = lane % TILES * TILE + lane / TILES;
            let there = key < count{{ " && " ~ is_seen("base + key") if limited }};
            scores[lane % TILES][lane / TILES] = select(LOWEST, {{ "capped_scores(whole)" if cap else "whole" }}, there);
        }
        workgroupBarrier();
        // The products and scores of the next step are stored after its barriers, so none is needed after this.
        var found = top;
$$ for i in range(own_tiles)
$$ for t in range(tile)
        let found{{ i }}_{{ t }} = scores[slice + {{ i * slices }}u][{{ t }}];
        found = max(found, found{{ i }}_{{ t }});
$$ endfor
$$ endfor
        let keep = exp(top - found);
        top = found;
        weight *= keep;
$$ for w in range(wide)
        sum0_{{ w }} *= keep;
$$ endfor
$$ for i in range(own_tiles)
$$ for t in range(tile)
        let added{{ i }}_{{ t }} = exp(found{{ i }}_{{ t }} - found);
        weight += added{{ i }}_{{ t }};
$$ for w in range(wide)
        sum0_{{ w }} += added{{ i }}_{{ t }} * value{{ i }}_{{ t }}_{{ w }};
$$ endfor
$$ endfor
$$ endfor
$$ else
        // Scores of TILE keys.
        let mine = lane * TILE;
        let steps = select(0u, p.key_steps, mine < count);
$$ for t in range(tile)
        let row{{ t }} = (first + (base + min(mine + {{ t }}u, count - 1u)) * p.key_rows) * p.key_steps;
        var score{{ t }} = {{ score }}();
$$ endfor
        for (var d = 0u; d < steps; d++) {
$$ for h in range(heads)
            let q{{ h }} = queries[{{ h }}u * p.key_steps + d];
$$ endfor
$$ for t in range(tile)
            let k{{ t }} = load_key(row{{ t }}, d);
$$ for h in range(heads)
            score{{ t }}{{ each[h] }} += dot(q{{ h }}, k{{ t }});
$$ endfor
$$ endfor
        }
        if (mine < count) {
$$ if cap
$$ for t in range(tile)
            score{{ t }} = capped_scores(score{{ t }});
$$ endfor
$$ endif
$$ if limited
            score0 = select({{ score }}(LOWEST), score0, {{ is_seen("base + mine") }});
$$ endif
            var found = score0;
$$ for t in range(1, tile)
            score{{ t }} = select({{ score }}(LOWEST), score{{ t }}, mine + {{ t }}u < count{{ " && " ~ is_seen("base + mine + %du" % t) if limited }});
            found = max(found, score{{ t }});
$$ endfor
$$ for t in range(tile)
$$ if limited
            weights[mine + {{ t }}u] = select({{ score }}(), exp(score{{ t }} - found), {{ is_seen("base + mine + %du" % t) }});
$$ else
            weights[mine + {{ t }}u] = exp(score{{ t }} - found);
$$ endif
$$ endfor
            tops[mine / TILE] = found;
        }
        workgroupBarrier();
        // Values of every SLICES-th tile.
        for (var t = slice; t * TILE < count; t += SLICES) {
            let found = tops[t];
            let higher = max(top, found);
            let keep = exp(top - higher);
            let add = exp(found - higher);
            top = higher;
            weight *= keep;
$$ for h in range(heads)
$$ for w in range(wide)
            sum{{ h }}_{{ w }} *= keep{{ each[h] }};
$$ endfor
$$ endfor
            for (var c = t * TILE; c < min((t + 1u) * TILE, count); c++) {
                let added = weights[c] * add;
                let row = (first + (base + c) * p.key_rows) * p.value_steps;
                weight += added;
$$ for w in range(wide)
                let value{{ w }} = load_value(row, min(column + {{ w * columns }}u, p.value_steps - 1u));
$$ for h in range(heads)
                sum{{ h }}_{{ w }} += added{{ each[h] }} * value{{ w }};
$$ endfor
$$ endfor
            }
        }
        workgroupBarrier();
$$ endif
    }
