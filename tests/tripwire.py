"""A port on loopback that should stay unknown: it counts who calls and tells them nothing."""

from __future__ import annotations

import socket
import threading
from types import TracebackType
from typing import Self


class Tripwire:
    """Listens while its context lasts. ``calls`` counts connections, on ``port``."""

    def __init__(self) -> None:
        self.calls = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._socket.close()

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.calls += 1
            connection.close()
