"""The process that prepares models for the frontend of a multi-model endpoint, which starts it: a line of JSON in, a line out.

It is a process of its own because it starts others (pip), which PID 1 would reap, and because a large archive leaves its
memory behind. Questions are answered as they are done, several at a time; each answer has its question's ``id``.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import unquote, urlsplit

from batch_handler.artefact import ArtefactError
from batch_handler.resources import available
from batch_handler.settings import SettingError, resolve
from entrypoint import diagnosis, home, model_memory, preparation, properties
from entrypoint.failure import StartError
from entrypoint.log import Log
from entrypoint.multi_model import MODELS, chosen_gpus
from entrypoint.start import Given
from entrypoint.workdir import FULL, NEEDED, TMP

AT_ONCE = 4
IDENTIFIER = re.compile(r"[a-z0-9-]{1,40}")
Answer = dict[str, Any]


def main(work: Path) -> int:
    """Answer until the frontend is gone; the exit code."""
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what else is printed must not get between the answers
    place = home.find()
    baked = properties.read(place.configuration)
    settings = resolve(os.environ, None, baked)
    log = Log(settings.log_format, settings.log_level)
    given = Given(os.environ, baked, available(), place, work, log, time.monotonic())
    Preparer(given).serve(sys.stdin, replies)
    return 0


class Preparer:
    """Knows the models that were prepared and not discarded, by the identifier that the frontend gave each."""

    def __init__(self, given: Given) -> None:
        self._given = given
        self._overheads = model_memory.Overheads()
        self._ready: dict[str, preparation.Ready] = {}
        self._writing = threading.Lock()
        self._answers: dict[str, Callable[[Mapping[str, Any]], Answer]] = {
            "prepare": self._prepare,
            "memory": self._memory,
            "explain": self._explain,
            "measure": self._measure,
            "discard": self._discard,
        }

    def serve(self, questions: TextIO, replies: TextIO) -> None:
        """Read questions to the end and answer each."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for line in questions:
                pool.submit(self._reply, json.loads(line), replies)

    def _reply(self, question: Mapping[str, Any], replies: TextIO) -> None:
        answer = {"id": question["id"], **self.answer(question)}
        with self._writing:
            replies.write(json.dumps(answer) + "\n")
            replies.flush()

    def answer(self, question: Mapping[str, Any]) -> Answer:
        """One question's answer, without its id; what cannot be done is told under ``refused``, with a sentence."""
        try:
            return self._answers[question["do"]](question)
        except (ArtefactError, SettingError, StartError) as error:
            self._given.log.debug(str(error))
            return {"refused": told(str(error), question)}
        except OSError as error:
            where = f"the preparation of {question.get('url')} failed: {error}"
            self._given.log.error(where)
            return {"refused": _sentence(error), "fault": True}
        except Exception as error:  # noqa: BLE001 -- the frontend waits for an answer, whatever it is
            self._given.log.error(traceback.format_exc().rstrip())
            return {"refused": f"the model cannot be prepared: {type(error).__name__}", "fault": True}

    def _prepare(self, question: Mapping[str, Any]) -> Answer:
        identifier = question["model"]
        artefact = local(question["url"])
        if any(own.is_relative_to(artefact.resolve()) for own in (self._given.home.root, self._given.work)):
            raise ArtefactError("the url names a directory that holds more than a model: this container's own files are there")
        ready = preparation.prepare(self._given, self._place(identifier), artefact, self._overheads)
        self._ready[identifier] = ready
        needs = {"memory": ready.host_bytes, "gpu": ready.gpu_bytes}
        return {"directory": str(ready.directory), "workers": ready.workers, "needs": needs}

    def _memory(self, _question: Mapping[str, Any]) -> Answer:
        free = model_memory.free_bytes(self._given.resources)
        return {"memory": free, "gpu": model_memory.free_gpu_bytes(chosen_gpus(self._given.environment))}

    def _explain(self, question: Mapping[str, Any]) -> Answer:
        ready = self._ready[question["model"]]
        return {"sentence": preparation.explain(self._given, ready), "killed": diagnosis.oom_kills() > ready.oom_kills_before}

    def _measure(self, question: Mapping[str, Any]) -> Answer:
        source = self._ready[question["model"]].source
        taken = [model_memory.private_bytes(pid) for pid in question["workers"]]
        private = [one for one in taken if one is not None]
        self._overheads.learn(source.ours, source.size, private)
        return {"memory": sum(private)}

    def _discard(self, question: Mapping[str, Any]) -> Answer:
        self._ready.pop(question["model"], None)
        preparation.discard(self._place(question["model"]))
        return {}

    def _place(self, identifier: str) -> Path:
        if not IDENTIFIER.fullmatch(identifier):
            raise ValueError(identifier)
        return self._given.work / MODELS / identifier


def local(url: str) -> Path:
    """The path that a model's url names: absolute, or with ``file://``. Raises ArtefactError.

    The platform names a directory that it has unpacked.
    """
    text = _path(url)
    if not text.startswith("/") or "\0" in text:
        raise ArtefactError(f"the url {url[:80]!r} is not accepted: use the absolute path of a directory in this container")
    if not _exists(Path(text)):
        raise ArtefactError("there is nothing at the url: it must be the path of the unpacked model in this container")
    if not Path(text).is_dir():
        raise ArtefactError("there is a file at the url: it must be the path of the unpacked model's directory in this container")
    return Path(text)


def _path(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:  # half of an IPv6 address
        return ""
    return unquote(parts.path) if parts.scheme == "file" and parts.netloc in ("", "localhost") else url


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # longer than any path
        return False


def told(sentence: str, question: Mapping[str, Any]) -> str:
    """What of a sentence about a model goes to its caller: the first line, without places in this container."""
    first = sentence.partition("\n")[0].rstrip(":")
    place = _path(str(question.get("url", "")))
    return first.replace(place, "the model's directory") if place.startswith("/") and len(place) > 1 else first


def _sentence(error: OSError) -> str:
    reason = error.strerror or type(error).__name__
    return f"{TMP} is too small ({reason}): {NEEDED}" if error.errno in FULL else f"the preparation failed: {reason}"
