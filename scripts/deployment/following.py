"""Waits until AWS is done, shows that it is alive, and says why when it fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console

from deployment.errors import DeploymentError

BUSY = ("Creating", "Updating", "SystemUpdating", "RollingBack", "Deleting")
LAST_LINES = 20


class Follower:
    """Looks every ``pause_s`` seconds and gives up after ``limit_s``; speaks on the console."""

    def __init__(self, console: Console, pause_s: float = 10.0, limit_s: float = 3_600.0) -> None:
        self.console = console
        self.pause_s = pause_s
        self.limit_s = limit_s

    def say(self, line: str) -> None:
        """One line of what was done."""
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def wait(
        self, what: str, look: Callable[[], Mapping[str, Any] | None], status_key: str, busy: Collection[str]
    ) -> Mapping[str, Any] | None:
        """Look until the status is none of the busy ones; None once the thing is gone. Raises DeploymentError."""
        started = time.monotonic()
        before = None
        with self.console.status(f"{what} …") as line:
            while True:
                found = look()
                status = found[status_key] if found else "gone"
                if not found or status not in busy:
                    self.say(f"{what} is {status} after {duration(time.monotonic() - started)}")
                    return found
                if time.monotonic() - started > self.limit_s:
                    raise DeploymentError(
                        f"{what} is still {status} after {duration(self.limit_s)}: look again later, or --delete"
                    )
                if status != before and not self.console.is_terminal:
                    self.say(f"{what} is {status}")
                line.update(f"{what} is {status}, {duration(time.monotonic() - started)}")
                before = status
                time.sleep(self.pause_s)


def duration(seconds: float) -> str:
    """Minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d} min"


def failure(session: Any, what: str, found: Mapping[str, Any] | None, log_group: str) -> DeploymentError:
    """The reason that AWS gives, and the last lines that the container logged."""
    reason = (found or {}).get("FailureReason") or "AWS gives no reason"
    lines = last_lines(session, log_group)
    if lines:
        return DeploymentError(
            "\n".join([f"{what}: {reason}", f"the last lines of {log_group}:", *(f"  {line}" for line in lines)])
        )
    return DeploymentError(f"{what}: {reason} (nothing was logged to {log_group})")


def last_lines(session: Any, log_group: str) -> list[str]:
    """Of the stream that was written to last; nothing where there is none or it may not be read."""
    client = session.client("logs")
    try:
        streams = client.describe_log_streams(logGroupName=log_group, orderBy="LastEventTime", descending=True, limit=1)
        if not streams["logStreams"]:
            return []
        name = streams["logStreams"][0]["logStreamName"]
        events = client.get_log_events(logGroupName=log_group, logStreamName=name, limit=LAST_LINES, startFromHead=False)
    except (ClientError, BotoCoreError):
        return []
    return [event["message"].rstrip() for event in events["events"]]
