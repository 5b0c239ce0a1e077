#!/usr/bin/env python3
"""A Docker client newer than any that is here: knows --provenance, and writes down how it was called instead of acting."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

arguments = sys.argv[1:]
if arguments == ["build", "--help"]:
    print("--secret\n--provenance\n--platform")
    raise SystemExit
if arguments[:2] == ["context", "inspect"]:
    print("unix:///var/run/docker.sock")
elif arguments[:2] == ["image", "inspect"]:
    print(json.dumps([{"Os": "linux", "Architecture": "amd64"}]))
folder = os.environ.get("DOCKER_CONFIG")
call = {
    "arguments": arguments,
    "given": sys.stdin.read() if arguments[0] == "login" else "",
    "config": folder,
    "config_was_there": bool(folder) and Path(folder).is_dir(),
}
with Path(os.environ["STAND_IN_DOCKER_LOG"]).open("a") as log:
    log.write(json.dumps(call) + "\n")
