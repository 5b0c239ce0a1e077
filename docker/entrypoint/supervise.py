"""From the start of java to its end: readiness, signals, deadlines."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from entrypoint import http
from entrypoint.failure import StartError
from entrypoint.log import Log
from entrypoint.process import FORWARDED, STOPPING, Child, Signals

PROBE_EVERY_S = 0.05
PROBE_TIMEOUT_S = 2.0
# java's own exit code when SIGTERM ends it before its drain exists.
TERMINATED = 128 + signal.SIGTERM
# With 25 s of drain the end comes before the platform's own SIGKILL, 30 s after SIGTERM.
GRACE_S = 4.0
STARTUP_GRACE_S = 30.0


@dataclass(frozen=True, slots=True)
class Ending:
    """How java ended: its code, how many seconds after it was asked to (None: nobody did), and whether it had served."""

    code: int
    took_s: float | None
    was_ready: bool

    @property
    def ordered(self) -> bool:
        """Whether the end was asked for."""
        return self.took_s is not None

    @property
    def exit_code(self) -> int:
        """Ours: 0 after an ordered stop, also one that came before there was anything to drain; else java's."""
        return 0 if self.ordered and not self.was_ready and self.code == TERMINATED else self.code


class Supervision:
    """One run of java. The limits are in seconds."""

    def __init__(self, child: Child, signals: Signals, log: Log, *, drain_s: float, startup_s: float) -> None:
        self._child = child
        self._signals = signals
        self._log = log
        self._drain_s = drain_s
        self._ready_by = time.monotonic() + startup_s + STARTUP_GRACE_S
        self._kill_at: float | None = None
        self._stopping_since: float | None = None
        self._ready = False

    def run(self, host: str, port: int, on_answer: Callable[[], None], on_ready: Callable[[], None]) -> Ending:
        """Watch over java until it ends.

        ``on_answer`` is called at the first answer of any kind on the serving port, ``on_ready`` once /ping says 200.
        What it raises, and the StartError of a model that is not ready in time, leave only after java was killed.
        """
        answered = False
        try:
            while self._child.code is None:
                self._step()
                if self._ready or self._kill_at is not None or self._child.code is not None:
                    continue
                status = ping(host, port)
                if status is not None and not answered:
                    answered = True
                    on_answer()
                if status == 200:
                    self._ready = True
                    on_ready()
                elif time.monotonic() > self._ready_by:
                    raise StartError("the model was not ready in time: BYOC_STARTUP_TIMEOUT gives it more seconds")
        finally:
            self._child.kill()
        took_s = None if self._stopping_since is None else time.monotonic() - self._stopping_since
        return Ending(self._child.code, took_s, self._ready)

    def _step(self) -> None:
        for number in self._signals.wait(self._patience()):
            if number in STOPPING:
                self._stop(number)
            elif number in FORWARDED:
                self._child.send(number)
        if self._kill_at is not None and time.monotonic() > self._kill_at:
            self._log.warning("java does not end: it is killed")
            self._child.kill()
            self._kill_at = time.monotonic() + GRACE_S
        self._child.reap()

    def _patience(self) -> float | None:
        """Seconds until something is due besides signals, of which SIGCHLD tells java's end; None when nothing is."""
        if self._kill_at is not None:
            return max(0.0, self._kill_at - time.monotonic()) + 0.01
        return None if self._ready else PROBE_EVERY_S

    def _stop(self, number: signal.Signals) -> None:
        if self._kill_at is not None:
            self._log.warning(f"{number.name} again: stops at once, requests in flight are lost")
            self._child.kill()
            return
        self._log.debug(f"{number.name}: answers what is in flight, then stops")
        self._stopping_since = time.monotonic()
        self._kill_at = self._stopping_since + self._drain_s + GRACE_S
        self._child.send(signal.SIGTERM)


def ping(host: str, port: int) -> int | None:
    """The status of /ping, or None while nobody answers."""
    try:
        return http.get(host, port, "/ping", PROBE_TIMEOUT_S)[0]
    except (OSError, ValueError):
        return None
