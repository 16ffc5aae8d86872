"""The engine of a language model: requests, scheduler, KV-cache slots, model runners and the loop over them."""
