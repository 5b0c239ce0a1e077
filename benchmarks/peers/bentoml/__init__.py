"""BentoML with its adaptive batching."""
