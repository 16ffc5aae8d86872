{# The operands of every kernel of a product, and the store of a sum. a_type and b_type are the
   elements that a and b are read as. #}
var<storage> a: array<{{ a_type }}>;  // (B or 1, M, K)
var<storage> b: array<{{ b_type }}>;  // (B, N, K) or (B, K, N)
$$ if added
var<storage> c: array<{{ type }}>;
$$ endif
var<storage> y: array<{{ out_type }}>;  // (B, M, N)

{$ include "matmul/epilogue.wgsl" $}

// Where a matrix begins: batches come in runs of p.heads.
fn start(batch: u32, outer: u32, head: u32) -> u32 {
    return batch / p.heads * outer + batch % p.heads * head;
}

fn put(y_start: u32, batch: u32, row: u32, column: u32, sum: f32) {
    var value = p.alpha * sum;
$$ if added
    value += p.beta * f32(c[batch * p.c_batch + row * p.c_row + column * p.c_column]);
$$ endif
    y[y_start + row * p.y_row + column] = epilogue(value, batch, row, column);
}
