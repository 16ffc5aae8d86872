{# From a flat index to positions in several layouts. #}
{# Add to each variable in `positions`, which maps its name to the name of its strides, the offset of element `index`. The
   dims are p.dims, or p.<of>dims. A caller's block computes with `at`, the index along dim k, itself. #}
{$ macro walk(positions, index="i", of="") $}
    var rest = {{ index }};
    for (var d = p.{{ of }}rank; d > 0u; d--) {
        let k = d - 1u;
        let size = p.{{ of }}dims[k >> 2u][k & 3u];
        let at = rest % size;
        rest /= size;
$$ for position, strides in positions.items()
        {{ position }} += at * p.{{ strides }}[k >> 2u][k & 3u];
$$ endfor
$$ if caller is defined
{{ caller() }}
$$ endif
    }
{$ endmacro $}
{# Declare the position of the output's element i in each operand: ai for operand a, with strides p.a_strides. #}
{$ macro operand_positions(operands, flat=false) $}
$$ for operand in operands
    {{ "let" if flat else "var" }} {{ operand }}i = {{ "i" if flat else "0u" }};
$$ endfor
$$ if not flat
$$ set positions = {}
$$ for operand in operands
$$ set _ = positions.update({operand ~ "i": operand ~ "_strides"})
$$ endfor
{{ walk(positions) }}
$$ endif
{$ endmacro $}
