"""Mutants of what builds and runs language models, and the test that notices each."""

from __future__ import annotations

from tests.mutants.table import Mutant

VARIANTS = "tests/contract/test_built_programs.py"


def of_variants(name: str, file: str, old: str, new: str, variants: str) -> Mutant:
    """Return a mutant that built programs of these variants notice, chosen as by `pytest -k`."""
    return Mutant(name, file, old, new, f"{VARIANTS} -k {variants}")


MODEL_MUTANTS = (
    of_variants(
        "a shared expert has no gate",
        "builder/decoder.py",
        "        if experts.shared_gate:\n",
        "        if False:\n",
        "qwen3_5_moe",
    ),
    of_variants(
        "norms of all heads together are taken by head",
        "builder/decoder.py",
        "        if model.qk_norm_by_head:\n",
        "        if True:\n",
        "olmo2",
    ),
    of_variants(
        "norms after the rotation are left out",
        "builder/decoder.py",
        "        if model.qk_norm_rotated:\n",
        "        if False:\n",
        "hunyuan",
    ),
    of_variants(
        "the cap of attention scores is dropped",
        "builder/decoder.py",
        "g.capped(g.scaled(scores, 1 / math.sqrt(width)), model.attention_cap)",
        "g.scaled(scores, 1 / math.sqrt(width))",
        "gemma2",
    ),
    of_variants(
        "the scores of chosen experts are always divided by their sum",
        "builder/layers.py",
        "experts.scoring, experts.normalized,",
        "experts.scoring, True,",
        "olmoe",
    ),
    of_variants(
        "the factor of a mixture is dropped",
        "builder/layers.py",
        "float(experts.factor))",
        "1.0)",
        "lfm2_moe",
    ),
    of_variants(
        "sinks are dropped",
        "builder/decoder.py",
        "        if model.sinks:\n",
        "        if False:\n",
        "gpt_oss",
    ),
    of_variants(
        "taps of a convolution are in another order",
        "builder/recurrent.py",
        "g.select(weight, 0, tap)))",
        "g.select(weight, 0, taps - tap)))",
        "lfm2",
    ),
    of_variants(
        "biases of SmolLM3's feed-forwards are not read",
        "checkpoints/families/smollm3.py",
        'mlp_bias=fields.boolean("mlp_bias"),',
        'mlp_bias=bool(fields.boolean("mlp_bias") and 0),',
        "smollm3",
    ),
    of_variants(
        "gpt-oss in GGUF has windows in the other layers",
        "checkpoints/families/gpt_oss.py",
        "None if number % 2 else window",
        "window if number % 2 else None",
        "test_gguf_checkpoint",
    ),
    of_variants(
        "the logarithm of YaRN in GGUF is not read",
        "checkpoints/config.py",
        '    "mscale_all_dim": "yarn_log_multiplier",\n',
        "",
        "test_gguf_checkpoint",
    ),
    Mutant(
        "a state older than the window continues",
        "llm/engine/kv_slots.py",
        "return first_kept <= max(0, count - self.needed)",
        "return first_kept <= max(0, count - self.needed + 1)",
        "tests/unit/test_cache_window.py",
    ),
    Mutant(
        "user-defined pieces of SentencePiece are special",
        "llm/tokenizer_formats.py",
        "AddedToken(piece, normalized=not prefixed) for piece in own",
        "AddedToken(piece, special=True, normalized=not prefixed) for piece in own",
        "tests/contract/test_gguf_tokenizers.py",
    ),
)
