"""Ops of low-rank adapters."""
