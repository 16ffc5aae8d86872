"""Text encoders and pairs of encoder and decoder of `transformers`, tiny, with random weights."""

from typing import Any

import torch
import transformers as hf
from torch import randn
from torch.export import Dim

from tests.support.models.transformers import Outputs, lively

from ..building import Case, case, module, program

VOCABULARY = 97
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 80,
    "max_position_embeddings": 64,
}


def ids(batch: int, tokens: int) -> torch.Tensor:
    return torch.randint(3, VOCABULARY, (batch, tokens))


def hidden(config: Any, make: Any, *outputs: str) -> Case:
    """Token ids (2, T <= 31) and a mask that hides the end of the second row, attention as the library chooses it."""
    hf.logging.set_verbosity_error()
    model = Outputs(lively(make(config)), ("input_ids", "attention_mask"), outputs or ("last_hidden_state",))

    def step(tokens: int) -> tuple[torch.Tensor, ...]:
        keep = torch.ones(2, tokens, dtype=torch.int64)
        keep[1, tokens * 2 // 3 :] = 0
        return ids(2, tokens), keep

    t = Dim("t", min=2, max=31)
    return case(model, [step(n) for n in (31, 11, 2, 5, 17)], {1: t}, {1: t})


@program
def modernbert() -> Case:
    """Windows of eight tokens and, every second layer, all."""
    tokens: dict[str, Any] = {f"{name}_token_id": i for i, name in enumerate(("pad", "cls", "sep"))}
    layers: dict[str, Any] = {"local_attention": 8, "global_attn_every_n_layers": 2}
    config = hf.ModernBertConfig(**SIZES, **tokens, **layers, bos_token_id=1, eos_token_id=2)
    return hidden(config, hf.ModernBertModel)


@program
def distilbert() -> Case:
    sizes: dict[str, Any] = {"dim": 48, "n_layers": 2, "n_heads": 3, "hidden_dim": 80, "max_position_embeddings": 64}
    return hidden(hf.DistilBertConfig(vocab_size=VOCABULARY, **sizes), hf.DistilBertModel)


@program
def albert() -> Case:
    """One layer's weights for all layers."""
    config = hf.AlbertConfig(**SIZES, embedding_size=16)
    return hidden(config, hf.AlbertModel, "last_hidden_state", "pooler_output")


@program
def electra() -> Case:
    return hidden(hf.ElectraConfig(**SIZES, embedding_size=16), hf.ElectraModel)


@program
def xlmr() -> Case:
    return hidden(hf.XLMRobertaConfig(**SIZES), hf.XLMRobertaModel)


@program
def mobilebert() -> Case:
    """Bottlenecks, and norms without statistics."""
    sizes = SIZES | {"num_attention_heads": 2, "intermediate_size": 64}
    config = hf.MobileBertConfig(**sizes, embedding_size=16, intra_bottleneck_size=16)
    return hidden(config, hf.MobileBertModel)


@program
def bert_sdpa() -> Case:
    """BERT with fused attention."""
    return hidden(hf.BertConfig(**SIZES), hf.BertModel, "last_hidden_state", "pooler_output")


@program
def siglip_text() -> Case:
    return hidden(hf.SiglipTextConfig(**SIZES), hf.SiglipTextModel)


@program
def camembert() -> Case:
    return hidden(hf.CamembertConfig(**SIZES), hf.CamembertModel)


@program
def squeezebert() -> Case:
    """Linears as grouped convolutions."""
    groups = {f"{part}_groups": 1 for part in ("q", "k", "v", "post_attention", "intermediate", "output")}
    config = hf.SqueezeBertConfig(**SIZES, embedding_size=48, **groups)
    return hidden(config, hf.SqueezeBertModel)


@program
def nystromformer() -> Case:
    """Attention by landmarks."""
    config = hf.NystromformerConfig(**SIZES, segment_means_seq_len=64, num_landmarks=64)
    return hidden(config, hf.NystromformerModel)


@program
def fnet() -> Case:
    """Fourier transforms instead of attention."""
    sizes = {k: v for k, v in SIZES.items() if k != "num_attention_heads"}
    model = Outputs(lively(hf.FNetModel(hf.FNetConfig(**sizes))), ("input_ids",), ("last_hidden_state",))
    return case(model, [(ids(2, 16),) for _ in range(4)])


# ---------------------------------------------------------------- pairs


PAIR: dict[str, Any] = {
    f"{part}_{what}": size
    for part in ("encoder", "decoder")
    for what, size in (("layers", 2), ("attention_heads", 3), ("ffn_dim", 64))
}


def pair(model: Any, output: str) -> Case:
    """Two lengths: what is read (1, A <= 23) and what is written (1, B <= 19)."""

    def forward(self, read, written):
        return self.model(input_ids=read, decoder_input_ids=written, use_cache=False)[output]

    steps = [(ids(1, a), ids(1, b)) for a, b in ((23, 19), (20, 11), (2, 2), (23, 2), (5, 17))]
    dims = {1: Dim("a", min=2, max=23)}, {1: Dim("b", min=2, max=19)}
    return case(module(forward, model=lively(model)), steps, *dims)


@program
def t5() -> Case:
    sizes: dict[str, Any] = {"d_model": 48, "d_kv": 16, "d_ff": 80, "num_layers": 2, "num_heads": 3}
    config = hf.T5Config(vocab_size=VOCABULARY, **sizes, decoder_start_token_id=0)
    return pair(hf.T5ForConditionalGeneration(config), "logits")


@program
def bart() -> Case:
    config = hf.BartConfig(vocab_size=VOCABULARY, d_model=48, max_position_embeddings=64, **PAIR)
    return pair(hf.BartModel(config), "last_hidden_state")


@program
def marian() -> Case:
    """A translator."""
    tokens: dict[str, Any] = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
    config = hf.MarianConfig(vocab_size=VOCABULARY, d_model=48, max_position_embeddings=64, **PAIR, **tokens)
    return pair(hf.MarianMTModel(config), "logits")


@program
def mbart() -> Case:
    config = hf.MBartConfig(vocab_size=VOCABULARY, d_model=48, max_position_embeddings=64, **PAIR)
    return pair(hf.MBartModel(config), "last_hidden_state")


@program
def pegasus() -> Case:
    """A summariser, positions as sines."""
    config = hf.PegasusConfig(vocab_size=VOCABULARY, d_model=48, max_position_embeddings=64, **PAIR)
    return pair(hf.PegasusModel(config), "last_hidden_state")


# ---------------------------------------------------------------- speech


def whisper() -> Any:
    sizes = PAIR | {"encoder_layers": 1, "d_model": 48, "num_mel_bins": 8}
    tokens: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    lengths: dict[str, Any] = {"max_source_positions": 50, "max_target_positions": 40}
    config = hf.WhisperConfig(vocab_size=VOCABULARY, **sizes, **tokens, **lengths)
    return lively(hf.WhisperForConditionalGeneration(config))


@program
def whisper_enc() -> Case:
    def forward(self, x):
        return self.model.model.encoder(x).last_hidden_state

    return case(module(forward, model=whisper()), [(randn(1, 8, 100),) for _ in range(4)])


@program
def whisper_dec() -> Case:
    """Any number of tokens over an encoded sound."""

    def forward(self, written, sound):
        decoder = self.model.model.decoder
        state = decoder(input_ids=written, encoder_hidden_states=sound, use_cache=False).last_hidden_state
        return self.model.proj_out(state)

    steps = [(ids(1, k), randn(1, 50, 48)) for k in (31, 11, 2, 5, 30)]
    return case(module(forward, model=whisper()), steps, {1: Dim("t", min=2, max=31)}, None)


SPEECH: dict[str, Any] = {
    "vocab_size": 29,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "conv_dim": (16, 16),
    "conv_kernel": (10, 3),
    "conv_stride": (5, 2),
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
}


def sound(config: Any, make: Any) -> Case:
    model = Outputs(lively(make(config)), ("input_values",), ("logits",))
    return case(model, [(randn(1, 800),) for _ in range(4)])


@program
def hubert() -> Case:
    return sound(hf.HubertConfig(**SPEECH), hf.HubertForCTC)


@program
def wavlm() -> Case:
    """Relative positions with a gate."""
    return sound(hf.WavLMConfig(**SPEECH), hf.WavLMForCTC)


@program
def data2vec_audio() -> Case:
    sizes = {k: v for k, v in SPEECH.items() if k != "num_conv_pos_embeddings"}
    return sound(hf.Data2VecAudioConfig(**sizes, num_conv_pos_embeddings=2), hf.Data2VecAudioForCTC)
