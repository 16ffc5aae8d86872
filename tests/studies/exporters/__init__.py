"""Language-model files of other exporters."""
