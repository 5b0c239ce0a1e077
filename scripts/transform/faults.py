"""The two ways in which a job goes wrong: one file of it, or the whole of it. Both are one sentence that says what to do."""

from __future__ import annotations


class JobError(Exception):
    """The job cannot start, or cannot go on."""


class FileError(Exception):
    """One input file gets no output; the other files go on."""
