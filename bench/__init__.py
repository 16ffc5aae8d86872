"""webpte beside the engine run bare and the peers pip can install, on the same adapter: `python -m bench`."""
