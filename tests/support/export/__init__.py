"""From a module to a program with goldens, through the real exporter, kept in a cache."""
