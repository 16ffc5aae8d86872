"""Plans saved here and run in another process, which reads no graph: the same bits as the ordinary path gives."""
