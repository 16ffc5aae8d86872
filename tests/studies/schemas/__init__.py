"""Answers that follow JSON schemas, judged by `jsonschema`."""
