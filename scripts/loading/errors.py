"""The one error of a load test that a user can act on."""

from __future__ import annotations


class LoadTestError(Exception):
    """One sentence: what was wrong, where, and what to do."""
