{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_workgroup $}
{$ set functions = [("relu", "f32"), ("exp", "f32"), ("log", "f32"), ("sigmoid", "f32")] $}
{$ include "elementwise/formulas.wgsl" $}
{$ set own = keys // lanes $}
{$ set wide = 4 if own % 4 == 0 else 1 $}
{$ set vector = "vec4<f32>" if wide == 4 else "f32" $}
{$ macro product(a, b) -$}
{{ "dot(" ~ a ~ ", " ~ b ~ ")" if wide == 4 else a ~ " * " ~ b }}
{$- endmacro $}
{$ macro from_row(at) -$}
{{ vector }}({$ for i in range(wide) $}{{ ", " if i }}mixed[{{ at }} + {{ i }}u]{$ endfor $})
{$- endmacro $}

var<storage> mixed: array<f32>;  // queries, keys and values of each row
var<storage> decay: array<f32>;
var<storage> strength: array<f32>;
var<storage> rate: array<f32>;  // of each head
var<storage> bias: array<f32>;
var<storage> slot_mapping: array<vec2<i32>>;  // slot and position of each row
var<storage> state: array<f32>;
var<storage> y: array<f32>;

const VALUES = {{ values }}u;
const COLUMNS = {{ columns }}u;  // of the state that a workgroup has
const LANES = {{ lanes }}u;  // invocations that share a column
const LOADS = {{ keys // wide }}u;  // of a key
const OWN = {{ own // wide }}u;  // of those, the loads of an invocation
const ROWS = {{ rows }}u;  // whose keys are in workgroup memory at a time

var<workgroup> row_queries: array<{{ vector }}, {{ rows * keys // wide }}>;
var<workgroup> row_keys: array<{{ vector }}, {{ rows * keys // wide }}>;
var<workgroup> lengths: array<vec3<f32>, {{ rows * lanes }}>;  // of queries and keys, squared, and their overlaps
var<workgroup> factors: array<vec3<f32>, ROWS>;  // of the query and the key, and their overlap
var<workgroup> gates: array<vec2<f32>, ROWS>;  // what a row keeps of the state, and its strength
var<workgroup> shares: array<vec2<f32>, {{ 2 * lanes * columns }}>;

// A workgroup has some columns of the state of a head: that of the first row of a slot goes over all rows in order, in
// blocks. Its invocations hold the columns in registers, some keys of a column each. No sum depends on the place of a
// row in its block, so a row has the same bits in any division into calls.
$$ call per_workgroup()
    let slice = workgroup % (VALUES / COLUMNS);
    let head = workgroup / (VALUES / COLUMNS) % p.heads;
    let first = workgroup / (VALUES / COLUMNS * p.heads);
    let place = slot_mapping[first];
    let follows = first > 0u && slot_mapping[first - min(first, 1u)].x == place.x;
    let column = slice * COLUMNS + local % COLUMNS;
    let lane = local / COLUMNS;
    let stored = (((p.first + u32(place.x)) * p.heads + head) * LOADS + lane * OWN) * {{ wide }}u * VALUES + column;
$$ for i in range(own // wide)
    var held{{ i }} = {{ vector }}();
$$ endfor
    let busy = u32(place.x) < p.slots && !follows;
    if (busy && place.y + live(p.start) > 0) {
$$ for i in range(own)
        held{{ i // wide }}{{ "." ~ "xyzw"[i % wide] if wide == 4 }} = state[stored + {{ i }}u * VALUES];
$$ endfor
    }
    let key_head = head / p.group;
    let key_heads = p.heads / p.group;
    var end = first;
    var other = select(first, p.rows, busy);  // the first row of another slot is from `end` to here
    while (end < other) {
        let middle = (end + other) / 2u;
        if (slot_mapping[middle].x == place.x) {
            end = middle + 1u;
        } else {
            other = middle;
        }
    }
    for (var start = first; start < end; start += ROWS) {
        let count = min(ROWS, end - start);
        workgroupBarrier();
        for (var i = local; i < count * LOADS; i += wg) {
            let at = (start + i / LOADS) * p.width + (key_head * LOADS + i % LOADS) * {{ wide }}u;
            let key_at = at + key_heads * LOADS * {{ wide }}u;
            row_queries[i] = {{ from_row("at") }};
            row_keys[i] = {{ from_row("key_at") }};
        }
        workgroupBarrier();
        for (var i = local; i < count * LANES; i += wg) {
            var sums = vec3<f32>();
            for (var k = i * OWN; k < (i + 1u) * OWN; k++) {
                let query = row_queries[k];
                let key = row_keys[k];
                let squares = vec2<f32>({{ product("query", "query") }}, {{ product("key", "key") }});
                sums += vec3<f32>(squares, {{ product("query", "key") }});
            }
            lengths[i] = sums;
        }
        workgroupBarrier();
        for (var i = local; i < count; i += wg) {
            var sums = vec3<f32>();
            for (var part = 0u; part < LANES; part++) {
                sums += lengths[i * LANES + part];
            }
            let at = (start + i) * p.heads + head;
            let step = decay[at] + bias[head];
            let kept = exp_f32(rate[head] * (relu_f32(step) + log_f32(1.0 + exp_f32(-abs(step)))));
            let factor = inverseSqrt(sums.xy + p.eps);
            factors[i] = vec3<f32>(factor.x * p.scale, factor.y, sums.z);
            gates[i] = vec2<f32>(kept, sigmoid_f32(strength[at]));
        }
        workgroupBarrier();
        for (var t = 0u; t < count; t++) {
            let factor = factors[t];
            let gate = gates[t];
            let loads = t * LOADS + lane * OWN;
            var share = vec2<f32>();  // what the key and the query read from the state
$$ for i in range(own // wide)
            let key{{ i }} = row_keys[loads + {{ i }}u];
            held{{ i }} *= gate.x;
            let query{{ i }} = row_queries[loads + {{ i }}u];
            share += vec2<f32>({{ product("key" ~ i, "held" ~ i) }}, {{ product("query" ~ i, "held" ~ i) }});
$$ endfor
            let shared_at = (t % 2u) * LANES * COLUMNS + local % COLUMNS;
            shares[shared_at + lane * COLUMNS] = share;
            workgroupBarrier();
            var read = vec2<f32>();
            for (var part = 0u; part < LANES; part++) {
                read += shares[shared_at + part * COLUMNS];
            }
            let value = mixed[(start + t) * p.width + 2u * key_heads * LOADS * {{ wide }}u + head * VALUES + column];
            let change = (value - read.x * factor.y) * gate.y * factor.y;
$$ for i in range(own // wide)
            held{{ i }} += key{{ i }} * change;
$$ endfor
            if (lane == 0u) {
                y[((start + t) * p.heads + head) * VALUES + column] = fma(factor.z, change, read.y) * factor.x;
            }
        }
    }
    if (busy) {
$$ for i in range(own)
        state[stored + {{ i }}u * VALUES] = held{{ i // wide }}{{ "." ~ "xyzw"[i % wide] if wide == 4 }};
$$ endfor
    }
$$ endcall
