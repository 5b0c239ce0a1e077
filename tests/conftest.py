"""Which tests start servers or containers: they are marked ``serving``, and run one after the other.

Servers take the usual ports where they are free: two that start in one moment would choose the same. What asks a clock how
long something took marks itself ``alone``. All others may run beside one another.
"""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parent
FOLDERS = {"server", "container"}
"""Where every test does."""
STARTS_SERVERS = ("RunningServer", "STAND_IN_JAVA")
"""What a test's file elsewhere knows when it does."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark them here, so that nobody forgets it."""
    for item in items:
        file = item.getparent(pytest.Module)
        knows = any(hasattr(file.obj, name) for name in STARTS_SERVERS) if file else False
        if knows or item.path.relative_to(TESTS).parts[0] in FOLDERS:
            item.add_marker(pytest.mark.serving)
