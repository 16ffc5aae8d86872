"""Decoders in torch, as ExecuTorch's Llama has them: what programs of the builder must compute."""
