"""The bench in a browser: the page of a bundle beside onnxruntime-web, and beside webpte itself on the same driver."""
