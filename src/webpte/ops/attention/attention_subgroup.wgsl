{# Add up the keys from `begin` to `end`, in steps of `stride`, for `rows` of queries, by one subgroup of LANES
   invocations. Each invocation scores TILE keys at a time for all rows. Then all invocations add up the values of all
   keys, LANES columns at a time. Queries are shared too: each invocation loads a row of them in each step or, with
   `pieces`, holds its share of all rows in q0_0, q0_1, ... With `own_query` it loads a row in the order of the shares.
   With a window, each row sees the keys from `oldest` on, which is declared like `visible`. With `later`, a row passes
   over its own key, number `own_number`, or `cached` if not causal.
   Declare top, weight (an invocation's share of it) and the sums of all rows. #}
{$ set fours = (rows + 3) // 4 $}
{$ set width = rows if rows < 4 else 4 $}
{$ set score = {1: "f32", 2: "vec2<f32>", 3: "vec3<f32>", 4: "vec4<f32>"}[width] $}
{$ set each = [""] if width == 1 else [".x", ".y", ".z", ".w"] $}
$$ for f in range(fours)
    var top{{ f }} = {{ score }}(LOWEST);
    var weight{{ f }} = {{ score }}();
$$ endfor
$$ for w in range(wide)
    let column{{ w }} = min(lane + {{ w }}u * LANES, p.value_steps - 1u);
$$ for r in range(rows)
    var sum{{ r }}_{{ w }} = vec4<f32>();
$$ endfor
$$ endfor
    for (var base = begin; base < end; base += stride) {
        let last = min(end - base, TILE * LANES) - 1u;
$$ for t in range(tile)
        let key{{ t }} = (first + (base + min({{ t }}u * LANES + lane, last)) * p.key_rows) * p.key_steps;
$$ for f in range(fours)
        var score{{ t }}_{{ f }} = {{ score }}();
$$ endfor
$$ endfor
$$ if pieces
        for (var i = 0u; i < min(LANES, p.key_steps); i++) {
$$ for piece in range(pieces)
            let at{{ piece }} = min({{ piece }}u * LANES + i, p.key_steps - 1u);
$$ for t in range(tile)
            let k{{ t }}_{{ piece }} = load_key(key{{ t }}, at{{ piece }});
$$ endfor
$$ if own_query
            let own{{ piece }} = select(vec4<f32>(), {{ own_query }}[at{{ piece }}], {{ piece }}u * LANES + i < p.key_steps);
$$ endif
$$ for r in range(rows)
$$ if own_query
            let a{{ r }}_{{ piece }} = subgroupBroadcast(own{{ piece }}, {{ r }}u);
$$ else
            let a{{ r }}_{{ piece }} = subgroupShuffle(q{{ r }}_{{ piece }}, i);
$$ endif
$$ for t in range(tile)
            score{{ t }}_{{ r // 4 }}{{ each[r % 4] }} += dot(a{{ r }}_{{ piece }}, k{{ t }}_{{ piece }});
$$ endfor
$$ endfor
$$ endfor
        }
$$ else
        for (var d = 0u; d < p.key_steps; d++) {
            let own_query = {{ own_query }};
$$ for t in range(tile)
            let k{{ t }} = load_key(key{{ t }}, d);
$$ endfor
$$ for r in range(rows)
            let q{{ r }} = subgroupBroadcast(own_query, {{ r }}u);
$$ for t in range(tile)
            score{{ t }}_{{ r // 4 }}{{ each[r % 4] }} += dot(q{{ r }}, k{{ t }});
$$ endfor
$$ endfor
        }
$$ endif
$$ for f in range(fours)
        var found{{ f }} = {{ score }}(LOWEST);
$$ for t in range(tile)
{$ set found = ("capped_scores(score%d_%d)" if cap else "score%d_%d") % (t, f) $}
$$ if causal
$$ if window or later
        let number{{ t }}_{{ f }} = vec4<u32>(base + {{ t }}u * LANES + lane);
        let is_visible{{ t }}_{{ f }} = (number{{ t }}_{{ f }} < visible{{ f }}){{ " & (number%d_%d >= oldest%d)" % (t, f, f) if window }}{{ " & (number%d_%d != own_number%d)" % (t, f, f) if later }};
$$ else
        let is_visible{{ t }}_{{ f }} = vec4<u32>(base + {{ t }}u * LANES + lane) < visible{{ f }};
$$ endif
        score{{ t }}_{{ f }} = select({{ score }}(LOWEST), {{ found }}{{ " * p.scale" if not pieces }}, is_visible{{ t }}_{{ f }});
$$ elif window or later
        let is_visible{{ t }}_{{ f }} = {{ t }}u * LANES + lane <= last{{ " && base + %du * LANES + lane >= oldest" % t if window }}{{ " && base + %du * LANES + lane != cached" % t if later }};
        score{{ t }}_{{ f }} = select({{ score }}(LOWEST), {{ found }}, is_visible{{ t }}_{{ f }});
$$ else
        score{{ t }}_{{ f }} = select({{ score }}(LOWEST), {{ found }}, {{ t }}u * LANES + lane <= last);
$$ endif
        found{{ f }} = max(found{{ f }}, score{{ t }}_{{ f }});
$$ endfor
        let higher{{ f }} = max(top{{ f }}, subgroupMax(found{{ f }}));
        let keep{{ f }} = exp(top{{ f }} - higher{{ f }});
        top{{ f }} = higher{{ f }};
        weight{{ f }} *= keep{{ f }};
$$ for t in range(tile)
        score{{ t }}_{{ f }} = exp(score{{ t }}_{{ f }} - top{{ f }});
$$ if (causal and pieces) or window or later
        score{{ t }}_{{ f }} = select({{ score }}(), score{{ t }}_{{ f }}, is_visible{{ t }}_{{ f }});  // rows without visible keys
$$ endif
        weight{{ f }} += score{{ t }}_{{ f }};
$$ endfor
$$ endfor
$$ for r in range(rows)
$$ for w in range(wide)
        sum{{ r }}_{{ w }} *= keep{{ r // 4 }}{{ each[r % 4] }};
$$ endfor
$$ endfor
        for (var j = 0u; j < min(last + 1u, LANES); j++) {
$$ for t in range(tile)
            let value{{ t }} = (first + (base + min({{ t }}u * LANES + j, last)) * p.key_rows) * p.value_steps;
$$ for f in range(fours)
            let added{{ t }}_{{ f }} = subgroupShuffle(score{{ t }}_{{ f }}, j);
$$ endfor
$$ for w in range(wide)
            let v{{ t }}_{{ w }} = load_value(value{{ t }}, column{{ w }});
$$ for r in range(rows)
            sum{{ r }}_{{ w }} += added{{ t }}_{{ r // 4 }}{{ each[r % 4] }} * v{{ t }}_{{ w }};
$$ endfor
$$ endfor
$$ endfor
        }
    }
