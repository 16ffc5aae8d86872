"""What is run: programs by name, builders, language models."""
