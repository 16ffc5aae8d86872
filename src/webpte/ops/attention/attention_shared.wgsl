{# Add up the keys from `begin` to `end`, in steps of `stride`, for some query heads of one token, by a workgroup with
   shared memory. It scores as many keys as fit, TILE keys by `parts` invocations. Then it adds up their values: COLUMNS
   invocations share a row, and the keys are divided into SLICES. Declare top, weight and the sums of a slice. #}
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
        let steps = select(0u, p.key_steps, mine < count);
$$ for t in range(tile)
        let row{{ t }} = (first + (base + min(mine + {{ t }}u, count - 1u)) * p.key_rows) * p.key_steps;
        var score{{ t }} = {{ score }}();
$$ endfor
        for (var d = lane % {{ parts }}u; d < steps; d += {{ parts }}u) {
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
$$ if parts > 1
$$ for t in range(tile)
        products[lane * TILE + {{ t }}u] = score{{ t }};
$$ endfor
        workgroupBarrier();
        let mine_now = lane * TILE;
$$ for t in range(tile)
        score{{ t }} = {{ score }}();
$$ endfor
        for (var i = lane * {{ parts }}u; i < (lane + 1u) * {{ parts }}u && lane < TILES; i++) {
$$ for t in range(tile)
            score{{ t }} += products[i * TILE + {{ t }}u];
$$ endfor
        }
$$ else
        let mine_now = mine;
$$ endif
        if (mine_now < count) {
            var found = score0;
$$ for t in range(1, tile)
            score{{ t }} = select({{ score }}(LOWEST), score{{ t }}, mine_now + {{ t }}u < count);
            found = max(found, score{{ t }});
$$ endfor
$$ for t in range(tile)
            weights[mine_now + {{ t }}u] = exp(score{{ t }} - found);
$$ endfor
            tops[mine_now / TILE] = found;
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
    }
