"""The one error of publishing an image."""

from __future__ import annotations


class PublishingError(Exception):
    """One sentence: what could not be built or pushed, and what to do."""
