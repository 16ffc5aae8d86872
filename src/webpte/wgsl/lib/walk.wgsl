    // From the output's element i to each operand's: {{ layouts | join(", ") }}.
$$ if flat
$$ for operand in layouts
    let {{ operand }}i = i;
$$ endfor
$$ else
$$ for operand in layouts
    var {{ operand }}i = 0u;
$$ endfor
    var rest = i;
    for (var d = p.rank; d > 0u; d--) {
        let k = d - 1u;
        let size = p.dims[k >> 2u][k & 3u];
        let at = rest % size;
        rest /= size;
$$ for operand in layouts
        {{ operand }}i += at * p.{{ operand }}_strides[k >> 2u][k & 3u];
$$ endfor
    }
$$ endif
