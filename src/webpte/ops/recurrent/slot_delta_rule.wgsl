{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ set functions = [("relu", "f32"), ("exp", "f32"), ("log", "f32"), ("sigmoid", "f32")] $}
{$ include "elementwise/formulas.wgsl" $}

var<storage> mixed: array<f32>;  // queries, keys and values of each row
var<storage> decay: array<f32>;
var<storage> strength: array<f32>;
var<storage> rate: array<f32>;  // of each head
var<storage> bias: array<f32>;
var<storage> slot_mapping: array<vec2<i32>>;  // slot and position of each row
var<storage> state: array<f32>;
var<storage> y: array<f32>;

const KEYS = {{ keys }}u;
const VALUES = {{ values }}u;

// One invocation per element of the values: (R, H, V). That of the first row of a slot goes over all of them in order,
// and holds its column of the state. So a row has the same bits in any division into calls.
$$ call per_thread()
    let column = i % VALUES;
    let head = i / VALUES % p.heads;
    let first = i / (VALUES * p.heads);
    let place = slot_mapping[first];
    if (u32(place.x) >= p.slots || (first > 0u && slot_mapping[first - min(first, 1u)].x == place.x)) {
        return;
    }
    let stored = ((p.first + u32(place.x)) * p.heads + head) * KEYS * VALUES + column;
    var held: array<f32, KEYS>;
    if (place.y + live(p.start) > 0) {
        for (var k = 0u; k < KEYS; k++) {
            held[k] = state[stored + k * VALUES];
        }
    }
    let key_head = head / p.group;
    let key_heads = p.heads / p.group;
    for (var row = first; row < p.rows && slot_mapping[row].x == place.x; row++) {
        let query_at = row * p.width + key_head * KEYS;
        let key_at = query_at + key_heads * KEYS;
        let at = row * p.heads + head;
        let step = decay[at] + bias[head];
        let kept = exp_f32(rate[head] * (relu_f32(step) + log_f32(1.0 + exp_f32(-abs(step)))));
        var query_squares = 0.0;
        var key_squares = 0.0;
        var known = 0.0;
        for (var k = 0u; k < KEYS; k++) {
            let query = mixed[query_at + k];
            let key = mixed[key_at + k];
            query_squares = fma(query, query, query_squares);
            key_squares = fma(key, key, key_squares);
            held[k] = held[k] * kept;
            known = fma(key, held[k], known);
        }
        let key_factor = inverseSqrt(key_squares + p.eps);
        let value = mixed[row * p.width + 2u * key_heads * KEYS + head * VALUES + column];
        let change = (value - known * key_factor) * sigmoid_f32(strength[at]) * key_factor;
        var sum = 0.0;
        for (var k = 0u; k < KEYS; k++) {
            held[k] = fma(mixed[key_at + k], change, held[k]);
            sum = fma(mixed[query_at + k], held[k], sum);
        }
        y[at * VALUES + column] = sum * inverseSqrt(query_squares + p.eps) * p.scale;
    }
    for (var k = 0u; k < KEYS; k++) {
        state[stored + k * VALUES] = held[k];
    }
$$ endcall
