"""What a user writes and what we know: numbers with units and sources, read from TOML."""
