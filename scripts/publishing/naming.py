"""What an image is called: a repository, and a tag that says version, device and revision."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from publishing.errors import PublishingError

CHECKOUT = Path(__file__).resolve().parents[2]
PLATFORMS = {"linux/amd64": "amd64", "linux/arm64": "arm64"}
REVISION_LENGTH = 12
USUAL = "amd64"


def tag(device: str, platform: str, allow_changes: bool) -> str:
    """Such as 0.1.0-cpu-0123456789ab; -arm64 where it is not the usual platform. Raises PublishingError."""
    architecture = PLATFORMS[platform]
    words = [version(device), device, *([] if architecture == USUAL else [architecture]), revision(allow_changes)]
    return "-".join(words)


def version(device: str) -> str:
    """The default of the Dockerfile's ARG VERSION. Raises PublishingError."""
    dockerfile = CHECKOUT / f"Dockerfile.{device}"
    found = re.search(r"^ARG VERSION=(\S+)$", dockerfile.read_text("utf-8"), re.MULTILINE)
    if not found:
        raise PublishingError(f"{dockerfile.name} has no ARG VERSION: pass --tag")
    return found[1]


def revision(allow_changes: bool) -> str:
    """The commit, marked when files differ from it; a tag must not stand for two contents. Raises PublishingError."""
    try:
        commit = git("rev-parse", f"--short={REVISION_LENGTH}", "HEAD")
        changes = git("status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        raise PublishingError("git does not know a revision of this checkout: pass --tag") from None
    if changes and not allow_changes:
        raise PublishingError("files differ from the last commit: commit them, or pass --allow-changes or --tag")
    return f"{commit}-changed" if changes else commit


def git(*arguments: str) -> str:
    """What git printed about the checkout."""
    return subprocess.run(["git", *arguments], cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout.strip()
