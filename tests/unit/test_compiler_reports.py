"""Reports of GPU compilers: the figures that are read from short samples of each."""

from __future__ import annotations

import pytest

from bench.compilers import parse

RADV_STATS = """
Compute Shader:
*** SHADER STATS ***
Driver pipeline hash: 1551562088769633702
SGPRs: 128
VGPRs: 48
Spilled SGPRs: 0
Spilled VGPRs: 3
Code size: 2912
LDS size: 1024
Scratch size: 0
Subgroups per SIMD: 32
Combined inputs: 0
Instructions: 550
Copies: 48
Branches: 4
Latency: 3439
Inverse Throughput: 957
VMEM Clause: 5
Pre-Sched VGPRs: 25
VALU: 257
SALU: 94
VMEM: 11
SMEM: 13
VOPD: 1
********************
"""
# Two loops in one: the first of them has the multiplications, a wait and a hint are not counted.
RADV_LISTING = """Compute Shader
disasm:
BB0:
	s_mov_b32 s0, s3                                            ; be800003
	s_cbranch_scc0 BB5                                          ; bfa102c6
BB1:
	s_add_u32 s2, s2, 1                                         ; 80028102
BB2:
	buffer_load_b32 v6, v6, s[28:31], 0 offen                   ; e0500000 80470606
	s_waitcnt vmcnt(0)                                          ; bf8903f7
	v_fma_f32 v7, v6, v5, v7                                    ; d6130007 041e0b06
	s_delay_alu instid0(VALU_DEP_1)                             ; bf870001
	v_dual_fmac_f32 v1, v2, v3 :: v_dual_mul_f32 v0, v4, v5     ; ca100080 01000080
	s_cbranch_scc1 BB2                                          ; bfa2fff0
BB3:
	ds_load_b32 v1, v2                                          ; d8d80000 01000002
	v_add_nc_u32_e32 v3, 64, v3                                 ; 4a0606c0
	s_cbranch_execnz BB3                                        ; bfa6fff0
BB4:
	s_branch BB1                                                ; bfa0ffc1
BB5:
	s_endpgm                                                    ; bfb00000

"""
RADV_OWN_NOTATION = """Compute Shader
disasm:
Shader disassembly is not supported in the current configuration, falling back to print_program.

After lowering to hw instructions:
ACO shader stage: SW (CS), HW (COMPUTE_SHADER)
BB0
/* logical preds: / linear preds: / kind: uniform, top-level, */
\t s1: %0:s[0] = s_mov_b32 %1069:s[3]
BB1
/* logical preds: BB0, BB1, / linear preds: BB0, BB1, / kind: uniform, loop-header, */
\t v4: %123:v[28-31] = buffer_load_dwordx4 %121:s[20-23], %122:v[26], 0 offen storage:buffer
\t v1: %7:v[7] = v_fma_f32 %6:v[6], %5:v[5], %7:v[7]
\tds_write_b128 %139:v[25], %136:v[28-31] storage:shared
\ts_wait_kmcnt imm:0
\ts_cbranch_scc1 block:BB1
"""
ANV = """
Native code for unnamed compute shader (null) (src_hash 0x4c6b1844) (sha1 58677d71)
SIMD16 shader: 954 instructions. 4 loops. 358988 cycles. 2:7 spills:fills, 70 sends, scheduled with mode lifo. \
Promoted 0 constants. Non-SSA regs (after NIR): 980. Compacted 20912 to 19632 bytes (6%)
   START B0 (126 cycles)
and(1)          g49<1>UD        g0<0,1,0>UD     0xffffffc0UD    { align1 WE_all 1N };
(+f0.0) if(16)  JIP:  LABEL1          UIP:  LABEL0              { align1 1H };

LABEL8:
sync nop(1)                     null<0,1,0>UB                   { align1 WE_all 1N I@1 };
(+f0.0) break(16) JIP:  LABEL5        UIP:  LABEL5              { align1 1H };
send(16)        g23UD           g50UD           nullUD          0x0210c580                0x00000000
                            ugm MsgDesc: ( load, a64, d32, V8 )  base_offset 0  { align1 WE_all 1N $1 };
mad(16)         g16<1>F         g17<8,8,1>F     g18<8,8,1>F     g19<1,1,1>F { align1 1H };
cmp.z.f0.0(16)  null<1>D        g21<0,1,0>D     -1D             { align1 1H F@3 };

LABEL5:
while(16)       JIP:  LABEL8                                    { align1 1H };
mov(16)         g16<1>UD        g23<0,1,0>UD                    { align1 1H };
"""
PANVK = """
SHADER-DB: MESA_SHADER_COMPUTE shader: 54 inst, 27.000000 cycles, 0.000000 fma, 0.406250 cvt, 0.062500 sfu, \
0.000000 v, 0.000000 t, 27.000000 ls, 32 quadwords, 2 threads, 0 loops, 0:0 spills:fills
SHADER-DB: MESA_SHADER_COMPUTE shader: 1794 inst, 444.000000 cycles, 3.984375 fma, 14.109375 cvt, 11.875000 sfu, \
0.000000 v, 0.000000 t, 444.000000 ls, 904 quadwords, 1 threads, 4 loops, 32:288 spills:fills
"""
# A repeated instruction counts as often as it runs; waits are not instructions.
TURNIP = """
MESA: info: Native code for unnamed CL shader (null) with sha1 dc30a327:
MESA: info: l193:
MESA: info: br !p0.y, #l616
MESA: info: l309:
MESA: info: (sy)(rpt2)mad.f32 r5.y, r9.z, r14.z, r5.y
MESA: info: nop
MESA: info: stp.f32 p[r1.x+0], r2.x, 1
MESA: info: jump #l309
MESA: info: l616:
MESA: info: end
MESA: info: ; CL: outputs:
MESA: info: ; CL prog 20/1: 1949 instr, 1042 nops, 907 non-nops, 96 mov, 8 cov, 2528 dwords
MESA: info: ; CL prog 20/1: 0 last-baryf, 0 last-helper, 0 half, 32 full, 32 constlen
MESA: info: ; CL prog 20/1: 1161 cat0, 104 cat1, 361 cat2, 255 cat3, 0 cat4, 3 cat5, 59 cat6, 6 cat7
MESA: info: ; CL prog 20/1: 39 sstall, 20 (ss), 0 systall, 6 (sy), 4 loops
"""
# The listing of the program comes first, then that of its preamble; both start at 0. The jump back is relative.
AGX = """
shader: MESA_SHADER_COMPUTE
block0 {
   $r0 = get_sr #0x50
   stop
}

   0: f2011004               mov      $r0, thread_in_grid_x
   4: 520842021900           if       r0, u9, 1, ult
   a: 0521280e33c9f200       load     r36_r37_r38_r39, du28, r25, lsl 2, i32, xyzw, a
  12: 3800                   wait     a
  14: bae58e2227740204       ffma     $r25, $r39, r25, r26
  1c: 9aedbe622700           fmul     $r27, $r31, r26
  22: 69990e0214000000       lload    r6, r7l, 0, i32, x
  2a: 00c0e0ffffff           jmp_any  -32
  30: 29990e0214000000       lstore   r6, r7l, 0, i32, x
ff8: 00c0d0ffffff           jmp_any  -4040
1000: 45090c0e00c01200       store    r1, du6, r0, i32, x, a
1008: 8800                   stop

   0: 0501500d00c87200       load     r0_r1_r2, du0, 5, lsl 2, i32, xyz, a
   8: 3a85c20200300001       ffma     r1, ^r1, 2.0, 1.0
  10: 8800                   stop
CS shader: 12 instrs, 4 alu, 4 fscib, 0 ic, 56 code size, 183 gprs, 16 uniforms, 0 scratch, 576 threads, 2 loops, \
1:2 spills:fills, 3 preamble inst
"""
# Two passes print the program; the last one counts. A predicate, a pair of results, an empty block.
NAK = """
NAK IR after opt_dce:
block 0 L1 [] -> {
      r9      = ffma r0 r1 r2
} -> [0]

NAK IR after calc_instr_deps:
block.u 0 L2 [] -> {
      ur0     = s2r sr[0x25]                            // delay=1 wr:0
                nop L0                                  // delay=1
@!p0            exit                                    // delay=1 wt=000011
} -> [1]
block 1 L3 [0, 3] -> {
      r14 p0  = iadd3 r13 c[0x1][0x20] rZ               // delay=1
      r13     = ld.global.a64.constant.b32 [r14..16], p0 // delay=2 rd:0 wr:1
      r6      = fmul.ftz r6 0x4f7ffffe                  // delay=6 wt=000001
      r1      = ffma.ftz r6 r13 r1                      // delay=6
@!p0            bra pT L8                               // delay=1
} -> [2, 4]
block 2 L4 [1] -> {
} -> [3]
block.u 3 L5 [2] -> {
                nop L45                                 // delay=1
                bra pT L3                               // delay=1
} -> [1]
block 4 L6 [1] -> {
                st.global.a64.strong.gpu.b32 [r4..6] r2 // delay=2 rd:0
                exit                                    // delay=1 wt=000001
} -> []

Stage: compute
Instruction count: 12
Static cycle count: 9957
Max warps/SM: 32
Spills to mem: 5
Spills to reg: 6
Fills from mem: 7
Fills from reg: 0
Num GPRs: 48
SLM size: 16
Encoded shader:
  00ff7355 00000000 00100000 000fc200
"""


def test_agx_figures_and_the_loop():
    figures = parse.agx(AGX)
    assert figures == {
        "instructions": 12,
        "alu": 4,
        "fscib": 4,
        "ic": 0,
        "code_bytes": 56,
        "registers": 183,
        "uniforms": 16,
        "scratch_bytes": 0,
        "occupancy": 576,
        "loops": 2,
        "spills": 1,
        "fills": 2,
        "preamble": 3,
        "loop_instructions": 5,  # load, ffma, fmul, lload, jump; not the wait
        "loop_memory": 2,
    }


def test_agx_without_the_listing_of_the_program_raises():
    with pytest.raises(parse.ReportError, match="13 instructions"):
        parse.agx(AGX.replace("12 instrs", "13 instrs"))


def test_nak_figures_and_the_loop():
    assert parse.nak(NAK) == {
        "instructions": 12,
        "cycles": 9957,
        "occupancy": 32,
        "spills": 5,
        "fills": 7,
        "register_spills": 6,
        "registers": 48,
        "scratch_bytes": 16,
        "loop_instructions": 6,  # five of block 1 and the branch of block 3
        "loop_memory": 1,
    }


def test_turnip_figures_and_the_loop():
    figures = parse.turnip(TURNIP)
    assert figures["instructions"] == 1949 and figures["registers"] == 32 and figures["nops"] == 1042
    assert figures["code_bytes"] == 2528 * 4 and figures["cat3"] == 255 and figures["ss_stalls"] == 39
    assert figures["spills"] == 1 and figures["loop_instructions"] == 5 and figures["loops"] == 4


def test_panvk_figures():
    assert parse.panvk(PANVK) == {
        "instructions": 1794,
        "cycles": 444,
        "fma": 255,
        "cvt": 903,
        "sfu": 190,
        "load_store": 444,
        "occupancy": 1,
        "loops": 4,
        "spills": 32,
        "fills": 288,
        "code_bytes": 904 * 16,
    }


def test_radv_figures_and_the_loop_with_the_multiplications():
    figures = parse.radv(RADV_LISTING + RADV_STATS)
    assert figures["registers"] == 48 and figures["scalar_registers"] == 128 and figures["spills"] == 3
    assert figures["occupancy"] == 32 and figures["shared_bytes"] == 1024 and figures["code_bytes"] == 2912
    assert figures["instructions"] == 550 and figures["latency"] == 3439 and figures["inverse_throughput"] == 957
    assert [figures[name] for name in ("valu", "salu", "vmem", "smem", "vopd", "lds")] == [257, 94, 11, 13, 1, 1]
    loop = {name: value for name, value in figures.items() if name.startswith("loop_")}
    assert loop == {
        "loop_instructions": 4,
        "loop_valu": 2,
        "loop_vmem": 1,
        "loop_lds": 0,
        "loop_smem": 0,
        "loop_salu": 1,
    }


def test_compiler_report_store_loop_is_not_hot_loop():
    """An activation after a matrix product may have more multiplications than the product."""
    stored = RADV_LISTING.replace(
        "\tv_add_nc_u32_e32 v3, 64, v3", "\tv_mul_f32_e32 v3, 64, v3\n" * 9 + "\tbuffer_store_b32 v3"
    )
    assert stored != RADV_LISTING
    assert parse.radv(stored + RADV_STATS)["loop_vmem"] == 1
    store = "                            ugm MsgDesc: ( store, a64, d32, V1 )  base_offset 0  { align1 1H };"
    assert parse.anv(ANV.replace("mad(16) ", f"send(16)    nullUD\n{store}\nmad(16) "))["loop_instructions"] == 6


def test_radv_own_notation_has_the_same_counts():
    figures = parse.radv(RADV_OWN_NOTATION + RADV_STATS)
    assert [figures[f"loop_{kind}"] for kind in ("instructions", "valu", "vmem", "lds", "salu")] == [4, 1, 1, 1, 1]


def test_anv_figures_and_the_loop():
    figures = parse.anv(ANV)
    assert figures == {
        "occupancy": 16,
        "instructions": 954,
        "loops": 4,
        "cycles": 358988,
        "spills": 2,
        "fills": 7,
        "sends": 70,
        "code_bytes": 19632,
        "loop_instructions": 5,  # break, send, mad, cmp, while
        "loop_sends": 1,
    }


@pytest.mark.parametrize("read", [parse.radv, parse.anv, parse.panvk, parse.turnip, parse.agx, parse.nak])
def test_compiler_report_without_figures_raises(read):
    with pytest.raises(parse.ReportError):
        read("nothing was compiled")


def test_compiler_report_kernel_without_loop_has_no_loop_count():
    listing = "disasm:\nBB0:\n\tv_mov_b32_e32 v1, 0   ; 7e020280\n\ts_endpgm   ; bfb00000\n"
    assert parse.radv(listing + RADV_STATS)["loop_instructions"] == 0
