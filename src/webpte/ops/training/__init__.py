"""Losses, gradients and optimizer steps."""
