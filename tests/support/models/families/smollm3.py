"""SmolLM3: layers without RoPE at an interval, or as listed."""

MODEL_TYPE = "smollm3"
VARIANTS = {
    "every second layer": {"no_rope_layer_interval": 2, "tie_word_embeddings": True},
    "as listed": {"no_rope_layers": [0, 1, 0], "num_hidden_layers": 3},
    "every fourth layer": {"num_hidden_layers": 4},
    "as transformers takes it": {"num_hidden_layers": 4, "attention_bias": True, "mlp_bias": True},
}
