"""LitServe, with and without its dynamic batching."""
