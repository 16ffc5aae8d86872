"""Running things: cases, devices, terminals, browsers, interrupts, and files written without an exporter."""
