"""The next token from logits."""
