"""The one error of a deployment."""

from __future__ import annotations


class DeploymentError(Exception):
    """One sentence or more, a line each: what was wrong, where, and what to do."""
