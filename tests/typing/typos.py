# mypy: ignore-errors
"""Twelve mistakes, each in a line of its own that ends with its number: both type checkers find every one."""

from __future__ import annotations

import numpy as np

import webpte
from webpte.llm import LLM

x = np.zeros((1, 8), np.float32)
program = webpte.lode("model.pte")  # 1: the name of a function
with webpte.load("model.pte", memmory=1 << 30) as loaded:  # 2: a keyword
    pass
with webpte.load("model.pte", tune="cache") as loaded:  # 3: one of three words
    pass
with webpte.load("model.pte", limits={"max-buffer-size": "256 MB"}) as loaded:  # 4: the type of a limit
    method = loaded.metod("forward")  # 5: the name of a method
with webpte.load("model.pte") as loaded:
    forward = loaded.method("forward")
    forward.run([x], output=[0])  # 6: a keyword
    forward.run(x)  # 7: an array where a list of them is required
    print(forward.inputs[0].shape)  # 8: an attribute
    print(forward(x).shpae)  # 9: an attribute of an array
with LLM.load("model.pte") as llm:
    llm.generate("Once", max_tokens=5)  # 10: a keyword
    llm.generate("Once", temperature="hot")  # 11: the type of a setting
    print(llm.generate("Once").usage.total_tokens)  # 12: an attribute
