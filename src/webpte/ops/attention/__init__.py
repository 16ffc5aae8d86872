"""Scaled dot products with caches, and rotary positions."""
