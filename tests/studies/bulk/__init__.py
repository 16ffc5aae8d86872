"""Proofs of `webpte batch` that take long: many rows, processes that are killed, answers that follow a schema."""
