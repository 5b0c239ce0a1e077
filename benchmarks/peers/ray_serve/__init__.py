"""Ray Serve with its request batching."""
