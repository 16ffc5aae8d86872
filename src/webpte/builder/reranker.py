"""Build the program of a language model that ranks documents, for `webpte.embed.LanguageReranker`."""

from __future__ import annotations

from pathlib import Path

from ..checkpoints.checkpoint import check_source, read_checkpoint
from ..checkpoints.sentence_transformers import read_answer_tokens
from ..checkpoints.tokenizer_config import read_chat_template
from ..errors import InputError, UnsupportedError
from ..llm.tokenizer import Tokenizer
from ..llm.tokenizer_file import read_tokenizer
from ..progress import CancelToken, OnProgress, ignore
from ..task_file import LANGUAGE_RERANKING, write_task
from .llm import export_llm
from .options import LLMOptions, PathLike

# What Qwen3-Reranker was trained with.
_TASK = "Judge whether the Document meets the requirements based on the Query and the Instruct provided."
PREFIX = f'<|im_start|>system\n{_TASK} Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
SUFFIX = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
FAMILIES = ("Qwen3",)  # whose rerankers have this prompt


def check_prompt(folder: Path) -> None:
    """Raise UnsupportedError unless the chat template of a reranker has the prompt of Qwen3-Reranker."""
    if _TASK not in (read_chat_template(folder) or ""):
        raise UnsupportedError(
            items=["chat_template"],
            argument=f"{folder}: its chat template",
            expected=f"the prompt of Qwen3-Reranker, {_TASK!r}",
            got="none or another",
            code="reranker_prompt",
            hint="If the model was trained on this prompt, export it with the task reranking.",
        )


def export_language_reranker(
    checkpoint: PathLike,
    path: PathLike,
    *,
    instruction: str = INSTRUCTION,
    quantize: str | None = None,
    group_size: int = 32,
    embedding: str | None = None,
    lm_head: str | None = None,
    calibrate: bool | PathLike | None = None,
    max_context: int | None = None,
    max_tokens: int | None = None,
    progress: OnProgress = ignore,
    cancel: CancelToken | None = None,
) -> Path:
    """Write a program as `export_llm` does, and beside it `task.json`, for `webpte.embed.LanguageReranker.load`.

    The checkpoint is a Qwen3-Reranker, or another Qwen3 that was trained on its prompt. `instruction` describes the
    task in every prompt. The other options are those of `export_llm`; `max_context` limits the tokens of a pair.
    """
    source, target = Path(checkpoint), Path(path)
    check_source(source)
    model = read_checkpoint(source)
    if model.family.name not in FAMILIES:
        raise UnsupportedError(
            items=["task"],
            argument=str(source),
            expected=f"a model of the family {', '.join(FAMILIES)} for the task reranking",
            got=model.family.name,
            code="reranker_family",
        )
    words = Tokenizer(read_tokenizer(f"{source}: its tokenizer.json", model.tokenizer.encode()))
    answers = {word: words.token_id(word) for word in ("yes", "no")}
    listed = None if source.suffix == ".gguf" else read_answer_tokens(source if source.is_dir() else source.parent)
    if listed not in (None, tuple(answers.values())):
        raise UnsupportedError(
            items=["LogitScore"],
            argument=f"{source}: its LogitScore",
            expected=f"the tokens of yes and no, {', '.join(map(str, answers.values()))}",
            got=", ".join(map(str, listed or ())),
            code="reranker_tokens",
        )
    if missing := [word for word, number in answers.items() if number is None]:
        raise UnsupportedError(
            items=missing,
            argument=f"{source}: its tokenizer.json",
            expected="the tokens yes and no",
            got=f"none for {' and '.join(missing)}",
            code="reranker_tokens",
        )
    context = LLMOptions(max_context=max_context, max_tokens=max_tokens).sizes(model).max_context
    around = sum(len(words.encode(text, parse_special=True)) for text in (PREFIX, SUFFIX))
    if context <= around:
        raise InputError(
            argument="max_context",
            expected=f"more than the {around} tokens of the prompt around a pair",
            got=context,
            code="max_context",
        )
    export_llm(
        source,
        target,
        quantize=quantize,
        group_size=group_size,
        embedding=embedding,
        lm_head=lm_head,
        calibrate=calibrate,
        max_context=max_context,
        max_tokens=max_tokens,
        progress=progress,
        cancel=cancel,
    )
    fields = {"max_tokens": context, "prefix": PREFIX, "suffix": SUFFIX, "instruction": instruction}
    write_task(target, LANGUAGE_RERANKING, fields | answers)
    return target
