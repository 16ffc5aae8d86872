{$ include "kernel.wgsl" $}
{$ include "loads.wgsl" $}
{$ from "loads.wgsl" import array_of, loaded, storable $}
{$ set fours = (rows + 3) // 4 $}
{$ set own_query = loaded("q[query_at + d]", type) $}
{$ set causal = true $}
{$ set window, cap, later = 0, "", false $}
{$ set pieces = 0 $}

var<storage> q: {{ array_of(type) }};
var<storage> keys: {{ array_of(cache) }};
var<storage> values: {{ array_of(cache) }};
var<storage> y: {{ array_of(type) }};

const LOWEST = -3.4e38;
const LANES = {{ lanes }}u;
const TILE = {{ tile }}u;

{$ include "attention/cache_loads.wgsl" $}

// Attention of many tokens: each invocation of a subgroup owns a row of queries.
@compute @workgroup_size(wg)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let job = id.x + id.y * groups.x;  // (B, key head, rows)
    let busy = job * LANES < p.threads;
    let row_of_keys = job / p.row_blocks;  // (B, key head)
    let row_block = job - row_of_keys * p.row_blocks;
    let batch = row_of_keys / p.key_heads;
    let key_head = row_of_keys - batch * p.key_heads;
    // The rows of a key head are its query heads of the first token, then of the next.
    let last_row = p.seq * p.group - 1u;
    let r = min(row_block * {{ rows }}u + lane, last_row);
    let token = r / p.group;
    let head = key_head * p.group + r - token * p.group;
$$ if heads_first
    let row = (batch * p.heads + head) * p.seq + token;
$$ else
    let row = (batch * p.seq + token) * p.heads + head;
$$ endif
    let query_at = row * p.key_steps;
    let first = batch * p.batch_rows + key_head * p.head_rows;  // row of the first key
    let start = u32(live(p.start)) + p.keys;
    let begin = 0u;
    let stride = TILE * LANES;
    // The keys that the last row sees: the same for all invocations.
    let end = start + min(row_block * {{ rows }}u + {{ rows - 1 }}u, last_row) / p.group * p.causal;
    let own_visible = start + token * p.causal;
$$ for f in range(fours)
    let visible{{ f }} = vec4<u32>(
$$ for r in range(4 * f, 4 * f + 4)
        subgroupBroadcast(own_visible, {{ r }}u),
$$ endfor
    );
$$ endfor
{$ include "attention/attention_subgroup.wgsl" $}
$$ for f in range(fours)
    let whole{{ f }} = subgroupAdd(weight{{ f }});
$$ endfor

    let rows_here = select(0u, min({{ rows }}u, last_row + 1u - row_block * {{ rows }}u), busy);
    for (var i = 0u; i < rows_here; i++) {
        let at = subgroupShuffle(row, i) * p.value_steps + lane;
        var whole = whole0[i & 3u];
$$ if fours > 1
        whole = select(whole, whole1[i & 3u], i > 3u);
$$ endif
$$ for w in range(wide)
        var sum{{ w }} = sum0_{{ w }};
$$ for r in range(1, rows)
        sum{{ w }} = select(sum{{ w }}, sum{{ r }}_{{ w }}, i == {{ r }}u);
$$ endfor
        if (lane + {{ w }}u * LANES < p.value_steps) {
            let out = sum{{ w }} / max(whole, 1.0);
            y[at + {{ w }}u * LANES] = {{ storable("out", type) }};
        }
$$ endfor
    }
}
