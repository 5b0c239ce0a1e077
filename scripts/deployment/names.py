"""How what a deployment makes is called, and how it is known again: by its content and by its tag."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

TAG = "torchserve-byoc:endpoint"
DIGEST_LENGTH = 12
NAME_LIMIT = 63


def by_content(name: str, parameters: Mapping[str, Any]) -> str:
    """The endpoint's name and a digest: the same content has the same name, and any other has another.

    Tags do not count, so that a new tag alone never replaces anything.
    """
    counted = {key: value for key, value in parameters.items() if key != "Tags"}
    digest = hashlib.sha256(json.dumps(counted, sort_keys=True).encode()).hexdigest()[:DIGEST_LENGTH]
    return f"{name[: NAME_LIMIT - DIGEST_LENGTH - 1]}-{digest}"


def is_by_content(name: str, found: str) -> bool:
    """Whether `found` is a name that `by_content` gives for this endpoint."""
    head, _, digest = found.rpartition("-")
    return head == name[: NAME_LIMIT - DIGEST_LENGTH - 1] and len(digest) == DIGEST_LENGTH


def tags(name: str, more: Mapping[str, str]) -> list[dict[str, str]]:
    """The tag that says which endpoint a thing belongs to, and the user's own."""
    return [{"Key": key, "Value": value} for key, value in {**more, TAG: name}.items()]
