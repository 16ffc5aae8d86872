"""Read what people have: folders, GGUF files and hub repositories with a config, weights and a tokenizer.

No module of it needs torch. `read_checkpoint` of `checkpoint` is the entry; `families/` has a file of declarations for
each architecture.
"""
