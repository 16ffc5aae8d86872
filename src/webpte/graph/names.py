"""Every op that the graph uses by name. All other facts about an op are its traits (lowering.traits).

A pass may name ops too: those that it looks for in its table PATTERN, and the op of webpte's own that it writes in a
constant. `tests/unit/test_op_names.py` looks for names elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence

# -- ops of webpte's own that this package or several passes write. No file may call them ------------------------------

OWN = "webpte."
COPY = "webpte.copy"  # copies self to out, converted to its dtype: moves, private copies and casts
OVERFLOW = "webpte.overflow"  # checks whether 32-bit integers sufficed; a result other than zeros fails the call
INDEX_CHECK = "webpte.index_check"  # checks whether positions are inside a tensor; its result works as OVERFLOW's
CHECKS = (OVERFLOW, INDEX_CHECK)
ROUND_BF16 = "webpte.round_bf16"  # the nearest bf16, as f32
ELEMENTWISE = "webpte.elementwise"  # a program of elementwise steps: see programs.py
LINEAR_Q4 = "webpte.linear_q4"  # several 4-bit or 8-bit layers of one input: see ops/q4/linear_q4.py
INT4, INT4_HIGH_FIRST, INT8 = "int4", "int4_high_first", "int8"  # formats of its weights: see ops/weight_formats
INT8_SCALE_BYTES = 4  # of the f32 that ends a row of int8 in a cache of SLOT_ATTENTION: the largest absolute element
# Columns of a slot mapping of SLOT_ATTENTION with the later keys that a row sees. Kernels load them as one vector.
BIDIRECTIONAL_MAPPING = 4
# Layers over int8 codes with the arithmetic of XNNPACK: see ops/q8/int8_convolution.py.
INT8_CONVOLUTION, INT8_LINEAR = "webpte.int8_convolution", "webpte.int8_linear"
INT8_DYNAMIC_CONVOLUTION, INT8_IMAGE_CODES = "webpte.int8_dynamic_convolution", "webpte.int8_image_codes"
INT8_ADD, INT8_MULTIPLY, INT8_TABLE = "webpte.int8_add", "webpte.int8_multiply", "webpte.int8_table"
INT8_MEAN, INT8_MAX_POOL = "webpte.int8_mean", "webpte.int8_max_pool"
MATMUL = "webpte.matmul"  # aten.addmm of operands in any layout, whose result may go through a program

# -- the op of webpte's own that files call: no standard ops compute only the experts that a token chooses ------------

EXPERTS = "webpte.experts"  # see ops/experts/experts.py

# -- what a program is made of beside computation ----------------------------------------------------------------------

PREPACK = "et_vk.prepack.default"  # in a delegate: a constant as a tensor
ITEM = "aten::_local_scalar_dense"  # a number out of a tensor
UPDATE = "aten::copy_"  # updates a buffer of the program
CONVERSION = "dim_order_ops::_to_dim_order_copy.out"  # to the dtype of its result
EMPTY = "aten::empty.out"
VIEW = "executorch_prim::et_view.default"
COPY_INDEX = "executorch_prim::et_copy_index.tensor"  # target, row, index: appends a row, in the loop of a map
RETURN_ONLY = ("executorch_prim::", ITEM, "aten::sym_size.int", "aten::sym_numel")  # kernels without an out argument

# -- what nodes of XNNPACK delegates become ----------------------------------------------------------------------------

XNN_UNARY = {
    "Abs": "aten.abs.default",
    "Ceiling": "aten.ceil.default",
    "Cos": "aten.cos.default",
    "Exp": "aten.exp.default",
    "Floor": "aten.floor.default",
    "Hardswish": "aten.hardswish.default",
    "Log": "aten.log.default",
    "Negate": "aten.neg.default",
    "ReciprocalSquareRoot": "aten.rsqrt.default",
    "Sigmoid": "aten.sigmoid.default",
    "Sin": "aten.sin.default",
    "SquareRoot": "aten.sqrt.default",
    "Tanh": "aten.tanh.default",
}
ADD, SUB, MUL = "aten.add.Tensor", "aten.sub.Tensor", "aten.mul.Tensor"
XNN_BINARY = {
    "Add": ADD,
    "Div": "aten.div.Tensor",
    "Maximum": "aten.maximum.default",
    "Minimum": "aten.minimum.default",
    "Multiply": MUL,
    "Subtract": SUB,
}
SCALED = (ADD, SUB)  # with a factor of the second operand
AVG_POOL = "aten.avg_pool2d.default"
BMM = "aten.bmm.default"
CAT = "aten.cat.default"
CHOOSE_QPARAMS = "torchao.choose_qparams_affine.default"
CLAMP = "aten.clamp.default"
CONV_WITH_CLAMP = "et_vk.conv_with_clamp.default"
DEQUANTIZE = "quantized_decomposed.dequantize_per_tensor.default"
DYNAMIC_LINEAR_Q4 = "et_vk.linear_dq8ca_q4gsw.default"
ELU = "aten.elu.default"
EXPAND = "aten.expand_copy.default"
FULL_LIKE = "aten.full_like.default"
GELU = "aten.gelu.default"
LEAKY_RELU = "aten.leaky_relu.default"
MAX_ALONG_DIM = "aten.max.dim"
MAX_OF_DIMS, MIN_OF_DIMS = "aten.amax.default", "aten.amin.default"
MAX_POOL = "aten.max_pool2d.default"
MEAN = "aten.mean.dim"
MM = "aten.mm.default"
PAD = "aten.constant_pad_nd.default"
PERMUTE = "aten.permute_copy.default"
PLAIN_LINEAR = "aten.linear.default"
QUANTIZE = "quantized_decomposed.quantize_per_tensor.default"
RELU = "aten.relu.default"
RESHAPE = "aten.view_copy.default"
RESIZE = "aten.upsample_bilinear2d.vec"
ROUND = "aten.round.default"
SLICE = "aten.slice_copy.Tensor"
SOFTMAX = "aten._softmax.default"
UNSQUEEZE = "aten.unsqueeze_copy.default"

# -- what advice about an export is about ------------------------------------------------------------------------------

ATEN = "aten."
FUSED_BY_EXPORTER = "et_vk."  # made inside delegates: no block list keeps such ops out
COPIES = ("aten.clone.default", "dim_order_ops._clone_dim_order.default", "aten.copy.default")


EXIR_OPS = "from executorch.exir.dialects._ops import ops as exir_ops"


def fused_by_exporter(name: str) -> bool:
    """Return whether ExecuTorch creates an op inside a delegate."""
    return name.startswith(FUSED_BY_EXPORTER)


def keep_out(names: Sequence[str]) -> str:
    """Return the change to an export that keeps ops out of delegates. A partitioner compares op objects."""
    fused = [name for name in names if fused_by_exporter(name)]
    plain = [name for name in names if name not in fused]
    sentences = []
    if plain:
        listed = ", ".join(f"exir_ops.edge.{name}" for name in plain)
        sentences.append(f"Re-export with VulkanPartitioner(operator_blocklist=[{listed}]), after `{EXIR_OPS}`.")
    if fused:
        sentences.append(f"ExecuTorch makes {', '.join(fused)} inside the delegate: no block list keeps such ops out.")
    return " ".join(sentences)
