"""webpte and its peers, each behind the same few questions of `bench.protocol`."""
