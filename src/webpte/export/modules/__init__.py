"""Modules of torch. They are imported only inside functions, because importing torch takes seconds."""
