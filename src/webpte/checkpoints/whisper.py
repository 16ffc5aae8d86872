"""Read Whisper checkpoints: sizes, weights, and what `webpte.speech` needs to know beside the program."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..container import Span
from ..errors import FormatError, UnsupportedError
from ..typing import Array
from .config import FieldRule, Fields
from .hugging_face import FIELD_RULES, IGNORED_FIELDS, read_json, read_tensors
from .recipe import EMBEDDING, HEAD
from .shapes import Shapes
from .weights import CheckpointWeights, StoredWeight, WeightSource, check_tensors

EMBEDDINGS = "model.decoder.embed_tokens.weight"  # the name in the checkpoint; the head shares it
_ROW_MULTIPLE = 4  # of a layer that is quantized: see recipe.fits

# Fields of config.json about training, or that generation_config.json and preprocessor_config.json have too.
_TRAINING = frozenset((
    "activation_dropout", "apply_spec_augment", "classifier_proj_size", "decoder_layerdrop", "encoder_layerdrop",
    "forced_decoder_ids", "init_std", "mask_feature_length", "mask_feature_min_masks", "mask_feature_prob",
    "mask_time_length", "mask_time_min_masks", "mask_time_prob", "median_filter_width", "num_hidden_layers",
    "use_weighted_layer_sum", "bos_token_id", "eos_token_id", "tie_word_embeddings",
))  # fmt: skip
_MODEL_RULES = {
    **FIELD_RULES,
    "is_encoder_decoder": FieldRule((True,), "no encoder"),
    "activation_function": FieldRule(("gelu",), "an activation other than gelu"),
    "architectures": FieldRule((["WhisperForConditionalGeneration"],), "a head of another task"),
}
# Fields of generation_config.json without effect on greedy decoding.
_IGNORED = frozenset((
    "_from_model_config", "transformers_version", "pad_token_id", "bos_token_id", "use_cache", "alignment_heads",
    "median_filter_width", "prev_sot_token_id", "return_timestamps", "task", "forced_decoder_ids",
    "prompt_condition_type", "temperature", "top_k", "top_p", "min_length", "length_penalty", "early_stopping",
    "output_attentions", "output_hidden_states", "output_scores", "return_dict_in_generate", "typical_p", "min_p",
    "epsilon_cutoff", "eta_cutoff", "remove_invalid_values", "num_return_sequences", "diversity_penalty",
    "cache_implementation",
))  # fmt: skip
# Fields of preprocessor_config.json that follow from others, or concern batches.
_DERIVED = frozenset((
    "n_samples", "nb_max_frames", "padding_side", "return_attention_mask", "processor_class", "mel_filters",
))  # fmt: skip
_RULES = {
    "do_sample": FieldRule((False,), "sampling; decoding here is greedy"),
    "num_beams": FieldRule((1,), "beam search; decoding here is greedy"),
    "num_beam_groups": FieldRule((1,), "beam search; decoding here is greedy"),
    "repetition_penalty": FieldRule((1, 1.0), "a penalty of repeated tokens"),
    "encoder_repetition_penalty": FieldRule((1, 1.0), "a penalty of repeated tokens"),
    "no_repeat_ngram_size": FieldRule((0,), "a ban of repeated n-grams"),
    "encoder_no_repeat_ngram_size": FieldRule((0,), "a ban of repeated n-grams"),
    "condition_on_prev_tokens": FieldRule((False,), "each window is prompted with the text of the previous one"),
}
_RULES_OF_SPECTROGRAMS = {
    "feature_extractor_type": FieldRule(("WhisperFeatureExtractor",), "an input other than Whisper's spectrogram"),
    "dither": FieldRule((0, 0.0), "noise is added to the audio"),
    "do_normalize": FieldRule((False,), "the audio is normalized"),
    "padding_value": FieldRule((0, 0.0), "padding other than silence"),
}
_LANGUAGES = """
    en:english zh:chinese de:german es:spanish ru:russian ko:korean fr:french ja:japanese pt:portuguese tr:turkish
    pl:polish ca:catalan nl:dutch ar:arabic sv:swedish it:italian id:indonesian hi:hindi fi:finnish vi:vietnamese
    he:hebrew uk:ukrainian el:greek ms:malay cs:czech ro:romanian da:danish hu:hungarian ta:tamil no:norwegian th:thai
    ur:urdu hr:croatian bg:bulgarian lt:lithuanian la:latin mi:maori ml:malayalam cy:welsh sk:slovak te:telugu
    fa:persian lv:latvian bn:bengali sr:serbian az:azerbaijani sl:slovenian kn:kannada et:estonian mk:macedonian
    br:breton eu:basque is:icelandic hy:armenian ne:nepali mn:mongolian bs:bosnian kk:kazakh sq:albanian sw:swahili
    gl:galician mr:marathi pa:punjabi si:sinhala km:khmer sn:shona yo:yoruba so:somali af:afrikaans oc:occitan
    ka:georgian be:belarusian tg:tajik sd:sindhi gu:gujarati am:amharic yi:yiddish lo:lao uz:uzbek fo:faroese
    ht:haitian_creole ps:pashto tk:turkmen nn:nynorsk mt:maltese sa:sanskrit lb:luxembourgish my:myanmar bo:tibetan
    tl:tagalog mg:malagasy as:assamese tt:tatar haw:hawaiian ln:lingala ha:hausa ba:bashkir jw:javanese su:sundanese
    yue:cantonese
"""
LANGUAGE_NAMES = {code: name.replace("_", " ") for code, name in (each.split(":") for each in _LANGUAGES.split())}


@dataclass(frozen=True)
class Whisper:
    """The sizes of a Whisper."""

    vocabulary: int
    bands: int  # of the spectrogram
    dim: int
    encoder_layers: int
    decoder_layers: int
    encoder_heads: int
    decoder_heads: int
    encoder_hidden: int
    decoder_hidden: int
    source_positions: int  # of the encoder, each of two frames
    target_positions: int  # of the decoder
    scaled_embeddings: bool  # by the root of `dim`

    def shapes(self) -> Shapes:
        """Return the shapes of the parameters by name."""
        dim = self.dim
        shapes: Shapes = {f"{EMBEDDING}.weight": (self.vocabulary, dim), f"{HEAD}.weight": (self.vocabulary, dim)}
        for number, columns in ((1, self.bands), (2, dim)):
            name = f"model.encoder.conv{number}"
            shapes |= {f"{name}.weight": (dim, columns, 3), f"{name}.bias": (dim,)}
        sides = (
            ("encoder", self.encoder_layers, self.encoder_hidden, self.source_positions, ("self_attn",)),
            ("decoder", self.decoder_layers, self.decoder_hidden, self.target_positions, ("self_attn", "encoder_attn")),
        )
        for side, layers, hidden, positions, attentions in sides:
            shapes[f"model.{side}.embed_positions.weight"] = (positions, dim)
            for number in range(layers):
                layer = f"model.{side}.layers.{number}"
                for attention in attentions:
                    for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
                        shapes[f"{layer}.{attention}.{part}.weight"] = (dim, dim)
                        if part != "k_proj":
                            shapes[f"{layer}.{attention}.{part}.bias"] = (dim,)
                    shapes |= _norm(f"{layer}.{attention}_layer_norm", dim)
                shapes |= {f"{layer}.fc1.weight": (hidden, dim), f"{layer}.fc1.bias": (hidden,)}
                shapes |= {f"{layer}.fc2.weight": (dim, hidden), f"{layer}.fc2.bias": (dim,)}
                shapes |= _norm(f"{layer}.final_layer_norm", dim)
            shapes |= _norm(f"model.{side}.layer_norm", dim)
        return shapes


def _norm(name: str, dim: int) -> Shapes:
    return {f"{name}.weight": (dim,), f"{name}.bias": (dim,)}


@dataclass(frozen=True)
class WhisperCheckpoint:
    """A checkpoint of Whisper."""

    model: Whisper
    weights: CheckpointWeights
    task: dict[str, Any]  # the fields of the task file
    tokenizer: str  # the text of tokenizer.json

    def with_padded_head(self) -> WhisperCheckpoint:
        """Return the checkpoint with a head that can be quantized: rows of zeros follow those of the vocabulary."""
        name, rows = f"{HEAD}.weight", -(-self.model.vocabulary // _ROW_MULTIPLE) * _ROW_MULTIPLE
        head = _PaddedRows(self.weights.tensors[EMBEDDINGS], rows)
        sources = {**self.weights.sources, name: WeightSource(name, head.shape)}
        return replace(self, weights=CheckpointWeights(sources, {**self.weights.tensors, name: head}))


@dataclass(frozen=True)
class _PaddedRows:
    """A stored matrix with rows of zeros after its own."""

    stored: StoredWeight
    rows: int
    first: int = 0  # of the stored rows; those after them are zeros

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.rows, *self.stored.shape[1:])

    @property
    def span(self) -> Span:
        return self.stored.span

    def read(self) -> Array:
        last = min(self.first + self.rows, self.stored.shape[0])
        own = self.stored.part(self.first, last).read()
        return np.concatenate([own, np.zeros((self.rows - len(own), *own.shape[1:]), own.dtype)])

    def part(self, start: int, stop: int) -> _PaddedRows:
        return _PaddedRows(self.stored, stop - start, self.first + start)


def read_whisper(folder: Path) -> WhisperCheckpoint:
    """Read the checkpoint in a folder."""
    model, task, tokenizer = read_whisper_config(folder)
    tensors = read_tensors(folder)
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    stored = dict.fromkeys((f"{EMBEDDING}.weight", f"{HEAD}.weight"), EMBEDDINGS)
    sources = {name: WeightSource(stored.get(name, name), shape) for name, shape in model.shapes().items()}
    check_tensors(str(folder), "Whisper", shapes, sources, {"proj_out.weight"} & {*tensors})
    return WhisperCheckpoint(model, CheckpointWeights(sources, tensors), task, tokenizer)


def read_whisper_config(folder: Path) -> tuple[Whisper, dict[str, Any], str]:
    """Read and check everything but the weights: the sizes, the fields of the task file, and the tokenizer."""
    fields = Fields(str(folder / "config.json"), read_json(folder / "config.json"))
    if fields.get("model_type") != "whisper":
        raise UnsupportedError(
            items=["model_type"],
            argument=f"{folder / 'config.json'}: model_type",
            expected="whisper for speech",
            got=fields.get("model_type"),
            code="model_type",
        )
    model = Whisper(
        vocabulary=fields.integer("vocab_size", 51865),
        bands=fields.integer("num_mel_bins", 80),
        dim=fields.integer("d_model", 384),
        encoder_layers=fields.integer("encoder_layers", 4),
        decoder_layers=fields.integer("decoder_layers", 4),
        encoder_heads=fields.integer("encoder_attention_heads", 6),
        decoder_heads=fields.integer("decoder_attention_heads", 6),
        encoder_hidden=fields.integer("encoder_ffn_dim", 1536),
        decoder_hidden=fields.integer("decoder_ffn_dim", 1536),
        source_positions=fields.integer("max_source_positions", 1500),
        target_positions=fields.integer("max_target_positions", 448),
        scaled_embeddings=fields.boolean("scale_embedding"),
    )
    fields.refuse_unread((IGNORED_FIELDS | _TRAINING).__contains__, _MODEL_RULES)
    for heads in (model.encoder_heads, model.decoder_heads):
        if model.dim % heads:
            raise fields.invalid("d_model", model.dim, f"a multiple of {heads} heads")
    task = {**_spectrogram(folder, model), **_generation(folder, model)}
    return model, task, _tokenizer(folder)


def _spectrogram(folder: Path, model: Whisper) -> dict[str, Any]:
    """Return the settings of the spectrogram."""
    path = folder / "preprocessor_config.json"
    fields = Fields(str(path), read_json(path))
    bands, rate = fields.integer("feature_size", 80), fields.integer("sampling_rate", 16000)
    hop, window = fields.integer("hop_length", 160), fields.integer("chunk_length", 30) * rate
    about = {"rate": rate, "bands": bands, "fft": fields.integer("n_fft", 400), "hop": hop, "window": window}
    fields.refuse_unread(_DERIVED.__contains__, _RULES_OF_SPECTROGRAMS)
    expected = (model.bands, 2 * model.source_positions)
    if (bands, window // hop) != expected:
        raise FormatError(
            f"{path} defines {bands} bands of {window // hop} frames, but the model of config.json takes "
            f"{expected[0]} of {expected[1]}",
            code="spectrogram",
        )
    return about


def _generation(folder: Path, model: Whisper) -> dict[str, Any]:
    """Return the special tokens and the suppressed tokens."""
    path = folder / "generation_config.json"
    fields = Fields(str(path), read_json(path))
    fields.require("decoder_start_token_id", "eos_token_id")
    end = fields.get("eos_token_id")
    if not isinstance(end, int):
        raise UnsupportedError(
            items=["eos_token_id"],
            argument=f"{path}: eos_token_id",
            expected="one token id",
            got=end,
            code="eos_token_id",
        )
    languages = {name.strip("<|>"): token for name, token in fields.get("lang_to_id", {}).items()}
    multilingual, default = fields.boolean("is_multilingual", bool(languages)), fields.get("language")
    languages = languages if multilingual else {}
    tasks = fields.get("task_to_id", {})
    about = {
        "positions": model.target_positions,
        "max_length": fields.integer("max_length", model.target_positions),
        "start_token": fields.get("decoder_start_token_id"),
        "end_token": end,
        "no_timestamps_token": fields.get("no_timestamps_token_id"),
        "suppress_tokens": fields.get("suppress_tokens", []),
        "begin_suppress_tokens": fields.get("begin_suppress_tokens", []),
        "max_initial_timestamp_index": fields.get("max_initial_timestamp_index"),
        "languages": languages,
        "language_names": {code: LANGUAGE_NAMES[code] for code in languages if code in LANGUAGE_NAMES},
        "tasks": tasks if multilingual else {},
        "language": default.strip("<|>") if multilingual and isinstance(default, str) else None,
    }
    fields.refuse_unread(_IGNORED.__contains__, _RULES)
    return about


def _tokenizer(folder: Path) -> str:
    try:
        return (folder / "tokenizer.json").read_text(encoding="utf-8")
    except OSError as error:
        raise FormatError(
            f"{folder}: tokenizer.json cannot be read: {error.strerror}",
            code="tokenizer",
            hint="Write it with transformers: AutoTokenizer.from_pretrained(folder).save_pretrained(folder).",
        ) from error
