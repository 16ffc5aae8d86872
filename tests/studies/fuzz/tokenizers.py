"""Small tokenizers of every kind, and what a program does with one: the mutants of a tokenizer.json."""

from __future__ import annotations

import base64
import contextlib
import functools
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any

from tests.studies.fuzz.changes import changed_bytes, changed_json
from webpte.errors import UnsupportedError

TEXTS = [
    "Hello <|im_start|> wörld, it's 12345 o'clock\n",
    " two  spaces\tand a tab [MASK] \u0000 \U0001f600 ﬁ é e\u0301 日本語",
    "a" * 300 + "b",
    "",
]
_TRAINED = ["Hello world, it is a small text.", "The world is small, and so is this text 12345.", "日本語 ﬁ é"] * 3


def _trained(model: Any, trainer: Any, **parts: Any) -> Any:
    from tokenizers import Tokenizer

    result = Tokenizer(model)
    for name, part in parts.items():
        setattr(result, name, part)
    result.train_from_iterator(_TRAINED, trainer)
    return result


def _byte_level() -> Any:
    from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors, trainers

    alphabet = pre_tokenizers.ByteLevel.alphabet()
    result = _trained(
        models.BPE(),
        trainers.BpeTrainer(
            show_progress=False,
            vocab_size=300,
            initial_alphabet=alphabet,
            special_tokens=["<|im_start|>", "<|im_end|>"],
        ),
        pre_tokenizer=pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        ),
        decoder=decoders.ByteLevel(),
        post_processor=processors.ByteLevel(trim_offsets=False),
    )
    result.add_tokens([AddedToken("wör", lstrip=True, single_word=True), AddedToken("12", normalized=False)])
    return result


def _metaspace() -> Any:
    from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

    pieces = [f"<0x{byte:02X}>" for byte in range(256)]
    return _trained(
        models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True),
        trainers.BpeTrainer(show_progress=False, vocab_size=400, special_tokens=["<unk>", "<s>", "</s>", *pieces]),
        normalizer=normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
        pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme="first"),
        decoder=decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        ),
    )


def _word_piece() -> Any:
    from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

    result = _trained(
        models.WordPiece(unk_token="[UNK]"),
        trainers.WordPieceTrainer(
            show_progress=False, vocab_size=120, special_tokens=["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
        ),
        normalizer=normalizers.BertNormalizer(),
        pre_tokenizer=pre_tokenizers.BertPreTokenizer(),
        decoder=decoders.WordPiece(),
    )
    result.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    result.enable_padding(length=8, pad_id=3, pad_token="[PAD]")
    result.enable_truncation(16)
    return result


def charsmap() -> bytes:
    """Return the table of a Precompiled normalizer: the size of a trie, a trie that knows no word, and texts."""
    return (1024).to_bytes(4, "little") + bytes(1024) + b"fi\0e\0"


def _unigram() -> Any:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    letters = sorted({*"".join(_TRAINED).replace(" ", "▁")})
    words = {word for text in _TRAINED for word in f"▁{text}".replace(" ", " ▁").split()}
    scores = {"<unk>": 0.0, "<s>": 0.0, "</s>": 0.0} | {text: -float(len(text)) for text in [*letters, *sorted(words)]}
    result = Tokenizer(models.Unigram(list(scores.items()), unk_id=0))
    result.normalizer = normalizers.Sequence(
        [normalizers.Precompiled(charsmap()), normalizers.NFKC(), normalizers.StripAccents()]
    )
    result.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    result.decoder = decoders.Metaspace()
    result.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 1))
    return result


def _word_level() -> Any:
    from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

    result = _trained(
        models.WordLevel(unk_token="[UNK]"),
        trainers.WordLevelTrainer(show_progress=False, special_tokens=["[UNK]", "[CLS]"]),
        normalizer=normalizers.Sequence([normalizers.Lowercase(), normalizers.Replace(Regex(r"\s+"), " ")]),
        pre_tokenizer=pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|\s+"), "isolated"),
                pre_tokenizers.Punctuation(),
                pre_tokenizers.UnicodeScripts(),
            ]
        ),
        decoder=decoders.CTC(),
    )
    result.post_processor = processors.Sequence([processors.BertProcessing(("[CLS]", 1), ("[CLS]", 1))])
    return result


MAKERS: tuple[Callable[[], Any], ...] = (_byte_level, _metaspace, _word_piece, _unigram, _word_level)


@functools.cache
def honest_tokenizers() -> tuple[str, ...]:
    """Return the text of a tokenizer.json of every kind; the first also with parts that only some files have."""
    results = [str(make().to_str()) for make in MAKERS]
    document = json.loads(results[0])
    document["model"] |= {"continuing_subword_prefix": "", "end_of_word_suffix": "", "dropout": None}
    document["model"]["merges"] = [" ".join(merge) for merge in document["model"]["merges"]]  # as older files have it
    return (*results, json.dumps(document))


def mutant_tokenizer(bases: tuple[str, ...], random: Random) -> bytes:
    text = random.choice(bases)
    if random.random() < 0.08 and (old := base64.b64encode(charsmap()).decode()) in text:
        damaged = base64.b64encode(changed_bytes(charsmap(), random, header=1100)).decode()
        return text.replace(old, damaged).encode()
    if random.random() < 0.1:
        return changed_bytes(text.encode(), random, header=len(text))
    if random.random() < 0.15:  # a part of another file in the place of this one's
        document, other = json.loads(text), json.loads(random.choice(bases))
        for part in random.sample(sorted(document), random.choice([1, 1, 2])):
            document[part] = other.get(part)
        text = json.dumps(document)
        return text.encode() if random.random() < 0.5 else changed_json(text, random).encode()
    return changed_json(text, random).encode()


def use_tokenizer(path: Path, texts: Iterable[str] = TEXTS) -> None:
    """All that a program asks of one."""
    from webpte.llm.tokenizer import TextStream, Tokenizer

    tokenizer = Tokenizer.load(path)
    for text in texts:
        tokens = tokenizer.encode(text)
        tokenizer.encode(text, add_special=True)
        marked, result = tokenizer.mark_special_tokens(text)
        if result:
            tokenizer.encode_marked(marked)
        tokenizer.decode(tokens)
        tokenizer.decode(tokens, specials=True)
        stream = TextStream(tokenizer)
        for token in tokens[:20]:
            stream.push(token)
        stream.flush()
    tokenizer.decode([0, 1, 2, 1 << 31])
    Tokenizer.load(path, max_tokens=4).encode_cut(TEXTS[0])
    assert tokenizer.size >= 0 and tokenizer.special_ids is not None and tokenizer.max_token_bytes >= 0
    with contextlib.suppress(UnsupportedError):  # tokens of some kinds have no bytes of their own
        tokenizer.token_bytes(200)
