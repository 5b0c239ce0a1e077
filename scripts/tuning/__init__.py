"""Finding the batching settings for a model, a machine and a latency target: candidates, trials, search, and what to set."""
