{# Macros for products on matrix units: operands in f16, sums in f32. `shape` is (M, N, K) of one instruction. A workgroup
   owns `size` by `size` results, 32 or 64, in parts of size / 2 by 32: two below each other, size / 32 side by side. A part
   belongs to a subgroup. Wide subgroups, of which a workgroup has fewer than parts, take turns. The device decides the
   order of the sums of one instruction, which is the same for all rows. #}
{# Declare two tiles of `depth` numbers along K, and a strip of sums for each part. #}
{$ macro matrix_tiles(size, shape, depth) -$}
{$ set m, n, k = shape $}
const PARTS = {{ size // 16 }}u;

alias Left = subgroup_matrix_left<f16, {{ k }}, {{ m }}>;
alias Right = subgroup_matrix_right<f16, {{ n }}, {{ k }}>;
alias Sums = subgroup_matrix_result<f32, {{ n }}, {{ m }}>;
var<workgroup> x_tile: array<vec4<f16>, {{ size * depth // 4 }}>;
var<workgroup> w_tile: array<vec4<f16>, {{ size * depth // 4 }}>;
var<workgroup> strips: array<f32, PARTS * {{ m * 32 }}u>;

// Where four numbers along K lie, in a row of x or in a column of w. The operands of an instruction lie side by side.
fn tile_place(line: u32, quad: u32) -> u32 {
    return (quad / {{ k // 4 }}u * {{ size }}u + line) * {{ k // 4 }}u + quad % {{ k // 4 }}u;
}
{$- endmacro $}
{# Repeat the caller's block for the parts of each turn. It adds up `sums` of `part`, which may be PARTS or more: then the
   subgroup only shares its reads and writes. #}
{$ macro in_turns(size, shape) $}
{$ set m, n, k = shape $}
    let subgroups = wg / lanes_here;
    for (var first = 0u; first < PARTS; first += subgroups) {
        let part = first + local / lanes_here;
$$ for i in range(size // 2 // m)
$$ for j in range(32 // n)
        var sums{{ i }}_{{ j }}: Sums;
$$ endfor
$$ endfor
{{ caller() }}
    }
{$ endmacro $}
{# Add the products of both tiles to the sums. #}
{$ macro multiply_tiles(size, shape, depth) $}
{$ set m, n, k = shape $}
            if (part < PARTS) {
                let left = part / {{ size // 32 }}u * {{ size // 8 * k }}u;
                let right = part % {{ size // 32 }}u * {{ 8 * k }}u;
                for (var at = 0u; at < {{ size * depth // 4 }}u; at += {{ size * k // 4 }}u) {
$$ for j in range(32 // n)
                    let b{{ j }} = subgroupMatrixLoad<Right, col_major>(&w_tile, at + right + {{ j * n * k // 4 }}u, {{ k // 4 }}u);
$$ endfor
$$ for i in range(size // 2 // m)
                    let a{{ i }} = subgroupMatrixLoad<Left, row_major>(&x_tile, at + left + {{ i * m * k // 4 }}u, {{ k // 4 }}u);
$$ for j in range(32 // n)
                    sums{{ i }}_{{ j }} = subgroupMatrixMultiplyAccumulate(a{{ i }}, b{{ j }}, sums{{ i }}_{{ j }});
$$ endfor
$$ endfor
                }
            }
{$ endmacro $}
{# Repeat the caller's block for each result of the turn: result (below, right) of the workgroup, of `products` whose columns
   lie side by side in a part, is strips[place], strips[place + 16]. #}
{$ macro each_sum(size, shape, products=1) $}
{$ set m, n, k = shape $}
{$ set own = 32 // products $}
$$ for i in range(size // 2 // m)
        if (part < PARTS) {
$$ for j in range(32 // n)
            subgroupMatrixStore<row_major>(&strips, part * {{ m * 32 }}u + {{ j * n }}u, sums{{ i }}_{{ j }}, 32u);
$$ endfor
        }
        workgroupBarrier();
        for (var j = first * {{ m * own }}u + local; j < min(first + subgroups, PARTS) * {{ m * own }}u; j += wg) {
            let place = j / {{ own }}u * 32u + j % {{ own }}u;
            let below = j / {{ size // 32 * m * own }}u * {{ size // 2 }}u + {{ i * m }}u + j / {{ own }}u % {{ m }}u;
            let right = j / {{ m * own }}u % {{ size // 32 }}u * {{ own }}u + j % {{ own }}u;
{{ caller() }}
        }
        workgroupBarrier();
$$ endfor
{$ endmacro $}
