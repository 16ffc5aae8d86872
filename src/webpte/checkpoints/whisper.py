"""Read the config files of a Whisper checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import FormatError
from .config import FieldRule, Fields
from .hugging_face import FIELD_RULES, IGNORED_FIELDS
from .recipe import EMBEDDING, HEAD
from .speech_model import (
    Convolution,
    SpeechConfig,
    SpeechModel,
    features_of,
    generation_of,
    generation_task,
    refuse_other_features,
)

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
_IGNORED_IN_GENERATION = frozenset((
    "alignment_heads", "median_filter_width", "prev_sot_token_id", "return_timestamps", "task", "forced_decoder_ids",
    "prompt_condition_type",
))  # fmt: skip
_GENERATION_RULES = {
    "condition_on_prev_tokens": FieldRule((False,), "each window is prompted with the text of the previous one"),
}
_DERIVED = frozenset(("n_samples", "nb_max_frames", "mel_filters"))
_SPECTROGRAM_RULES = {
    "feature_extractor_type": FieldRule(("WhisperFeatureExtractor",), "an input other than Whisper's spectrogram"),
    "dither": FieldRule((0, 0.0), "noise is added to the audio"),
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


def read_whisper_config(folder: Path, fields: Fields) -> SpeechConfig:
    """Return the sizes and the task of a Whisper. `fields` are those of config.json."""
    dim, bands = fields.integer("d_model", 384), fields.integer("num_mel_bins", 80)
    source_positions = fields.integer("max_source_positions", 1500)  # each of two frames
    model = SpeechModel(
        name="Whisper",
        vocabulary=fields.integer("vocab_size", 51865),
        dim=dim,
        encoder_layers=fields.layers("encoder_layers", 4),
        decoder_layers=fields.layers("decoder_layers", 4),
        encoder_heads=fields.integer("encoder_attention_heads", 6),
        decoder_heads=fields.integer("decoder_attention_heads", 6),
        encoder_hidden=fields.integer("encoder_ffn_dim", 1536),
        decoder_hidden=fields.integer("decoder_ffn_dim", 1536),
        convolutions=(Convolution(bands, dim, 3, 1, 1, True, "gelu"), Convolution(dim, dim, 3, 2, 1, True, "gelu")),
        frames=2 * source_positions,
        target_positions=fields.integer("max_target_positions", 448),
        scaled_embeddings=fields.boolean("scale_embedding"),
    )
    fields.refuse_unread((IGNORED_FIELDS | _TRAINING).__contains__, _MODEL_RULES)
    stored = dict.fromkeys((f"{EMBEDDING}.weight", f"{HEAD}.weight"), "model.decoder.embed_tokens.weight")
    return SpeechConfig(model, {**_spectrogram(folder, model), **_generation(folder, model)}, stored)


def _spectrogram(folder: Path, model: SpeechModel) -> dict[str, Any]:
    """Return the settings of the spectrogram."""
    fields = features_of(folder)
    bands, rate = fields.integer("feature_size", 80), fields.integer("sampling_rate", 16000)
    hop, window = fields.integer("hop_length", 160), fields.integer("chunk_length", 30) * rate
    about = {"rate": rate, "bands": bands, "fft": fields.integer("n_fft", 400), "hop": hop, "window": window}
    refuse_other_features(fields, _DERIVED, _SPECTROGRAM_RULES)
    expected = (model.convolutions[0].inputs, model.frames)
    if (bands, window // hop) != expected:
        raise FormatError(
            f"{fields.where} defines {bands} bands of {window // hop} frames, but the model of config.json takes "
            f"{expected[0]} of {expected[1]}",
            code="spectrogram",
        )
    return about


def _generation(folder: Path, model: SpeechModel) -> dict[str, Any]:
    """Return the special tokens and the suppressed tokens."""
    fields = generation_of(folder)
    languages = {name.strip("<|>"): token for name, token in fields.mapping("lang_to_id").items()}
    multilingual, default = fields.boolean("is_multilingual", bool(languages)), fields.get("language")
    languages = languages if multilingual else {}
    tasks = fields.mapping("task_to_id")
    about = {
        "positions": model.target_positions,
        "max_length": fields.integer("max_length", model.target_positions),
        "no_timestamps_token": fields.get("no_timestamps_token_id"),
        "max_initial_timestamp_index": fields.get("max_initial_timestamp_index"),
        "languages": languages,
        "language_names": {code: LANGUAGE_NAMES[code] for code in languages if code in LANGUAGE_NAMES},
        "tasks": tasks if multilingual else {},
        "language": default.strip("<|>") if multilingual and isinstance(default, str) else None,
    }
    return {**about, **generation_task(fields, _IGNORED_IN_GENERATION, _GENERATION_RULES)}
