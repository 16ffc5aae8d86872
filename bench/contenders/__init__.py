"""webpte and its peers, each with the same few questions of `bench.protocol`."""
