"""Knowing what an endpoint can take: payloads, arrivals, calls, a sweep over concurrency, and the report about it."""
