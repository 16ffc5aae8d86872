"""The model of the live demo: a small Llama that learns `answers.json` by heart, in 4 bits.

python docs/demo/make_model.py     # trains for a minute, and writes model.pte and what belongs to it

The documentation bundles it at every build, see `_extensions/demo.py`.
"""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM

from webpte.export import export_llm
from webpte.llm import LLM

HERE = Path(__file__).parent
ANSWERS: list[list[str]] = json.loads((HERE / "answers.json").read_text(encoding="utf-8"))
TOKENS, CONTEXT, STEPS, BATCH = 512, 512, 700, 4
LENGTH = 192  # tokens of a conversation to learn from
END = "<end>"
TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'user' %}? {{ m.content }}\n"
    "{% elif m.role == 'assistant' %}! {{ m.content }}<end>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}! {% endif %}"
)
SIZES = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def make_tokenizer() -> Any:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=TOKENS, special_tokens=[END], initial_alphabet=alphabet)
    tokenizer.train_from_iterator([f"? {q}\n! {a}\n" for q, a in ANSWERS], trainer)
    return tokenizer


def spoilt(question: str, chance: random.Random) -> str:
    """As people type: small letters, no mark at the end, a slip."""
    if chance.random() < 0.3:
        question = question.lower()
    if chance.random() < 0.3:
        question = question.rstrip("?!.")
    if chance.random() < 0.3 and len(question) > 4:
        at = chance.randrange(len(question))
        question = question[:at] + question[at + 1 :]
    return question


def example(tokenizer: Any, chance: random.Random) -> tuple[list[int], list[int]]:
    """A conversation and what of it counts: the answers."""
    ids: list[int] = []
    labels: list[int] = []
    while len(ids) < LENGTH:
        question, answer = chance.choice(ANSWERS)
        asked = tokenizer.encode(f"? {spoilt(question, chance)}\n! ").ids
        said = tokenizer.encode(f"{answer}{END}").ids
        ids += [*asked, *said, *tokenizer.encode("\n").ids]
        labels += [*[-100] * len(asked), *said, *[-100] * len(tokenizer.encode("\n").ids)]
    return ids[:LENGTH], labels[:LENGTH]


def train(tokenizer: Any) -> Any:
    torch.manual_seed(0)
    chance = random.Random(0)
    config = LlamaConfig(
        vocab_size=TOKENS, max_position_embeddings=CONTEXT, eos_token_id=0, bos_token_id=None,
        tie_word_embeddings=False, **SIZES,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=STEPS)
    for step in range(STEPS):
        ids, labels = zip(*(example(tokenizer, chance) for _ in range(BATCH)), strict=True)
        loss = model(input_ids=torch.tensor(ids), labels=torch.tensor(labels)).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(f"{step} of {STEPS}: {loss.item():.3f}", flush=True)
    return model.eval()


def main() -> None:
    tokenizer = make_tokenizer()
    model = train(tokenizer)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        tokenizer.save(f"{folder}/tokenizer.json")
        config = {"chat_template": TEMPLATE, "eos_token": END}
        Path(folder, "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
        target = Path(folder, "out", "model.pte")
        target.parent.mkdir()
        export_llm(folder, target, quantize="4w", embedding="4,32", max_context=CONTEXT, max_tokens=128)
        for path in target.parent.iterdir():
            shutil.copy(path, HERE / path.name)
    with LLM.load(HERE / "model.pte") as llm:
        for question, answer in ANSWERS:
            said = llm.generate([{"role": "user", "content": question}], max_new_tokens=60)
            print("ok " if (text := "".join(piece.text for piece in said)) == answer else "NOT", question, text)


if __name__ == "__main__":
    main()
