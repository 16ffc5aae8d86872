// Where the elements behind output `i` start.
fn first_of(i: u32) -> u32 {
    var position = 0u;
    var rest = i;
    for (var d = p.rank; d > 0u; d--) {
        let k = d - 1u;
        let size = p.dims[k >> 2u][k & 3u];
        position += (rest % size) * p.strides[k >> 2u][k & 3u];
        rest /= size;
    }
    return position;
}

// Where run `o` of them starts; a run is p.inner elements, p.inner_stride apart.
fn run_of(o: u32) -> u32 {
    var position = 0u;
    var rest = o;
    for (var d = p.outer_rank; d > 0u; d--) {
        let k = d - 1u;
        let size = p.outer_dims[k >> 2u][k & 3u];
        position += (rest % size) * p.outer_strides[k >> 2u][k & 3u];
        rest /= size;
    }
    return position;
}
