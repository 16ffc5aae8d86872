{# Add up the keys from `begin` to `end`, in steps of `stride`, for some query heads of one token, by a workgroup with
   shared memory. It scores as many keys as fit, TILE keys by `parts` invocations. Then it adds up their values: COLUMNS
   invocations share a row, and the keys are divided into SLICES. With a window, keys before `oldest` weigh nothing;
   with `later`, nor does the token's own key, number `cached`.
   Declare top, weight and the sums of a slice. #}
{$ set limited = window or later $}
{$ macro is_seen(number) -$}
{{ number ~ " >= oldest" if window }}{{ " && " if window and later }}{{ number ~ " != cached" if later }}
{$- endmacro $}
    var top = {{ score }}(LOWEST);
    var weight = {{ score }}();
$$ for h in range(heads)
$$ for w in range(wide)
    var sum{{ h }}_{{ w }} = vec4<f32>();
$$ endfor
$$ endfor
    for (var base = begin; base < end; base += stride) {
        let count = min(end - base, TILES * TILE);
        // Scores of TILE keys.
        let mine = lane / {{ parts }}u * TILE;
        let steps = {{ "KEY_STEPS" if parts > 1 else "select(0u, p.key_steps, mine < count)" }};
$$ for t in range(tile)
        let row{{ t }} = (first + (base + min(mine + {{ t }}u, count - 1u)) * p.key_rows) * p.key_steps;
        var score{{ t }} = {{ score }}();
$$ endfor
        for (var d = lane % {{ parts }}u; d < steps; d += {{ parts }}u) {
$$ if parts > 1
{# A query at a time, so that few registers are in use. #}
$$ for t in range(tile)
            let k{{ t }} = load_key(row{{ t }}, d);
$$ endfor
$$ for h in range(heads)
            let q{{ h }} = queries[{{ h }}u * KEY_STEPS + d];
$$ for t in range(tile)
            score{{ t }}{{ each[h] }} = plus_product(score{{ t }}{{ each[h] }}, q{{ h }}, k{{ t }});
$$ endfor
$$ endfor
$$ else
$$ for h in range(heads)
            let q{{ h }} = queries[{{ h }}u * p.key_steps + d];
$$ endfor
$$ for t in range(tile)
            let k{{ t }} = load_key(row{{ t }}, d);
$$ for h in range(heads)
            score{{ t }}{{ each[h] }} += dot(q{{ h }}, k{{ t }});
$$ endfor
$$ endfor
$$ endif
        }
$$ if parts > 1
$$ for t in range(tile)
        products[{{ t }}u * TILES + lane / {{ parts }}u][lane % {{ parts }}u] = {{ "vec4<f32>(score" ~ t ~ ", 0.0)" if joint and heads == 3 else "score" ~ t }};
$$ endfor
        workgroupBarrier();
        if (lane < TILES * TILE) {
            var whole = {{ score }}();
            for (var i = 0u; i < {{ parts }}u; i++) {
                whole += products[lane][i]{{ ".xyz" if joint and heads == 3 }};
            }
            let there = lane % TILES * TILE + lane / TILES < count{{ " && " ~ is_seen("base + lane % TILES * TILE + lane / TILES") if limited }};
            scores[lane % TILES][lane / TILES] = select({{ score }}(LOWEST), {{ "capped_scores(whole)" if cap else "whole" }}, there);
        }
$$ else
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
$$ endif
        workgroupBarrier();
        // Values of every SLICES-th tile.
        for (var t = slice; t * TILE < count; t += SLICES) {
$$ if parts > 1
            var found = scores[t][0];
$$ for i in range(1, tile)
            found = max(found, scores[t][{{ i }}]);
$$ endfor
$$ else
            let found = tops[t];
$$ endif
            let higher = max(top, found);
            let keep = exp(top - higher);
$$ if parts == 1
            let add = exp(found - higher);
$$ endif
            top = higher;
            weight *= keep;
$$ for h in range(heads)
$$ for w in range(wide)
            sum{{ h }}_{{ w }} *= keep{{ each[h] }};
$$ endfor
$$ endfor
$$ if parts > 1
$$ for i in range(tile)
$$ if limited
            let added_{{ i }} = select({{ score }}(), exp(scores[t][{{ i }}] - higher), {{ is_seen("base + t * TILE + %du" % i) }});
$$ else
            let added_{{ i }} = exp(scores[t][{{ i }}] - higher);
$$ endif
            let row_{{ i }} = (first + (base + min(t * TILE + {{ i }}u, count - 1u)) * p.key_rows) * VALUE_STEPS;
            weight += added_{{ i }};
$$ for w in range(wide)
            let value_{{ i }}{{ w }} = load_value(row_{{ i }}, min(column + {{ w * columns }}u, VALUE_STEPS - 1u));
$$ for h in range(heads)
            sum{{ h }}_{{ w }} += added_{{ i }}{{ each[h] }} * value_{{ i }}{{ w }};
$$ endfor
$$ endfor
$$ endfor
$$ else
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
$$ endif
        }
        workgroupBarrier();
    }
