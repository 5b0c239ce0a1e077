"""A stand-in for java that answers like the frontend, in a tenth of a second; the only fake of these tests.

Configured by STAND_IN, words separated by blanks: ``exit=3`` ends at once, ``fail=3`` ends with the sentence of a worker,
``batch=9`` reports another batch size, ``deaf`` ignores SIGTERM, ``orphan`` leaves a process behind, ``late`` never gets ready.
"""

from __future__ import annotations

import json
import os
import signal
import socketserver
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

WORDS = dict(word.partition("=")[::2] for word in os.environ.get("STAND_IN", "").split())


def configuration() -> dict[str, str]:
    path = Path(sys.argv[sys.argv.index("--ts-config-file") + 1])
    lines = path.read_text("latin-1").splitlines()
    return {key: value for key, _, value in (line.replace("\\:", ":").partition("=") for line in lines)}


class Answers(BaseHTTPRequestHandler):
    described: bytes = b""

    def do_GET(self) -> None:
        body = b"" if self.path == "/ping" else self.described
        self.send_response(503 if "late" in WORDS and self.path == "/ping" else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


def described(values: dict[str, str]) -> bytes:
    text = Path(values["load_models"].partition("=")[2], "model-config.yaml").read_text()
    entry = {key: int(value) for key, _, value in (line.partition(": ") for line in text.splitlines()) if value.isdigit()}
    return json.dumps([entry | ({"batchSize": int(WORDS["batch"])} if "batch" in WORDS else {})]).encode()


def main() -> None:
    if "fail" in WORDS:
        Path(os.environ["_BYOC_FAILURE_FILE"]).write_text("the weights do not fit\nthe architecture")
    if code := WORDS.get("exit") or WORDS.get("fail"):
        sys.exit(int(code))
    socketserver.TCPServer.allow_reuse_address = True
    values = configuration()
    Answers.described = described(values)
    if "orphan" in WORDS:
        sleeper = subprocess.Popen(["sleep", "60"], start_new_session=True)
        Path(os.environ["STAND_IN_FILE"]).write_text(str(sleeper.pid))
    signal.signal(signal.SIGTERM, signal.SIG_IGN if "deaf" in WORDS else lambda *_: os._exit(int(WORDS.get("end", "0"))))
    for key in ("management_address", "inference_address"):
        host, _, port = values[key].removeprefix("http://").partition(":")
        server = ThreadingHTTPServer((host, int(port)), Answers)
        threading.Thread(target=server.serve_forever, daemon=True).start()
    signal.pause()


while True:
    main()
