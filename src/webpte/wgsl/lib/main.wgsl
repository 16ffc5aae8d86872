{# Entry points of kernels. The caller's block is the body: `$$ call per_thread()`, the statements, `$$ endcall`.
   Grids are rounded up, so invocations and workgroups past the end return at once. #}
{# `index` is the number of the invocation, below p.threads. #}
{$ macro per_thread(index="i") $}
@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let {{ index }} = thread_index(id, groups);
    if ({{ index }} >= p.threads) {
        return;
    }
{{ caller() }}}
{$ endmacro $}
{# `workgroup` is the number of the workgroup, `local` that of the invocation in it, `lane` that in its subgroup, which has
   `lanes_here` invocations. #}
{$ macro per_workgroup(lanes=0, subgroups=False) $}
@compute @workgroup_size(wg)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
$$ if lanes or subgroups
    @builtin(subgroup_invocation_id) lane: u32,
$$ endif
$$ if subgroups
    @builtin(subgroup_size) lanes_here: u32,
$$ endif
) {
    let workgroup = id.x + id.y * workgroups.x;
    if (workgroup * wg >= p.threads) {
        return;
    }
{{ caller() }}}
{$ endmacro $}
{# For kernels that include rows.wgsl. All invocations reach the end, because they share sums. #}
{$ macro rows_main(subgroups=False) $}
@compute @workgroup_size(wg)
fn main(
    @builtin(global_invocation_id) id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
$$ if subgroups
    @builtin(subgroup_invocation_id) subgroup_lane: u32,
    @builtin(subgroup_size) lanes_here: u32,
$$ endif
) {
$$ if subgroups
    subgroup_lanes = lanes_here;
$$ endif
{{ caller() }}}
{$ endmacro $}
{# For kernels that include lanes.wgsl: one workgroup of LANES invocations per row. A folded grid may have idle workgroups,
   which repeat the last row. #}
{$ macro per_row(subgroups=False) $}
@compute @workgroup_size(wg)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_id) local: vec3<u32>,  // its index would be computed at every use by some drivers
$$ if subgroups
    @builtin(subgroup_invocation_id) subgroup_lane: u32,
    @builtin(subgroup_size) lanes_here: u32,
$$ endif
) {
$$ if subgroups
    subgroup_lanes = lanes_here;
$$ endif
    let lane = local.x;
    let row = min(id.x + id.y * groups.x, p.threads / LANES - 1u);
{{ caller() }}}
{$ endmacro $}
