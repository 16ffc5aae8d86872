"""Programs with XNNPACK delegates, and what the executorch wheel computes with them: ``samples/``."""
