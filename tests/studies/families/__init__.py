"""Every family of language models: its tiny checkpoint exported, run, and compared with transformers."""
