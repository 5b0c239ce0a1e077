"""What a job has done so far, on disk, so that it can go on after any end: one folder per job, one file of JSON lines per object.

A line is added only after all that it tells is on disk itself. Whatever lies behind the last whole line is work to do again.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, Self

from transform.description import Job
from transform.faults import JobError
from transform.objects import InputObject
from transform.payloads import Place

JOB = "job.json"
RECORD = "journal.jsonl"
LOCK = "lock"
UNFINGERPRINTED = ("concurrency", "timeout_s", "retries", "environment")
"""How a job runs, which may change from one run to the next without changing what it writes."""


def default_root() -> Path:
    """Where journals are kept: XDG_STATE_HOME, or ~/.local/state."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "torchserve-byoc" / "transform"


def fingerprint(job: Job, model: str) -> str:
    """Names a job by all that decides what it writes, the model's address included."""
    said = {name: value for name, value in asdict(job).items() if name not in UNFINGERPRINTED}
    return hashlib.sha256(json.dumps([said, model], sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an object is: the place in it, failed records, bytes of its list of errors, and the output's own position."""

    place: Place = field(default_factory=Place)
    failed: int = 0
    errors: int = 0
    output: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class ObjectJournal:
    """The journal of one object.

    ``progress`` is the last that is safe; ``complete``: the output is whole and in place; ``current``: it was kept for the
    object as it is now. One that is not current says what an earlier run left behind, and must `begin` anew.
    """

    folder: Path
    identity: Mapping[str, Any]
    progress: Progress
    complete: bool
    current: bool
    _file: IO[str]

    @property
    def errors_path(self) -> Path:
        """Where failed records are listed until the object is done."""
        return self.folder / "errors.jsonl"

    def keep(self, progress: Progress, **facts: Any) -> None:
        """Make a state, and what else is to be known with it, safe."""
        self._append({"progress": asdict(progress), **facts})
        self.progress = progress

    def finish(self) -> None:
        """The output and the list of errors are in place."""
        self._append({"complete": True})
        self.complete = True

    def facts(self, name: str) -> list[Any]:
        """All that was kept under a name, in order, since the object was begun."""
        return [entry[name] for entry in _entries(self.folder / RECORD) if name in entry]

    def begin(self) -> None:
        """Forget everything and begin with the object as it is now."""
        self._file.close()
        _clear(self.folder)
        self._file = (self.folder / RECORD).open("w", encoding="utf-8")
        self._append(self.identity)
        self.progress, self.complete, self.current = Progress(), False, True

    def close(self) -> None:
        """Let the file go."""
        self._file.close()

    def _append(self, entry: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(entry, separators=(",", ":")) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())


@dataclass(slots=True)
class Journal:
    """The folder of one job. Only one run at a time may hold it."""

    folder: Path
    _lock: IO[str]

    @classmethod
    def opened(cls, folder: Path) -> Self:
        """Take a job's folder. Raises JobError when another run holds it."""
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / LOCK).open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            raise JobError(f"the same job is running already (its journal is {folder}): wait for it, or stop it") from None
        return cls(folder, lock)

    def close(self) -> None:
        """Let another run have it."""
        self._lock.close()

    def settled(self) -> dict[str, Any]:
        """What earlier runs of the job settled for all its objects: sizes that decide where objects are cut."""
        try:
            found: dict[str, Any] = json.loads((self.folder / JOB).read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        return found

    def settle(self, values: Mapping[str, Any]) -> None:
        """Keep them for later runs."""
        replace_durably(self.folder / JOB, json.dumps(values).encode())

    def of(self, found: InputObject) -> ObjectJournal:
        """The journal of an object."""
        identity = {"object": found.address.text, "name": found.name, "size": found.size, "version": found.version}
        folder = self.folder / hashlib.sha256(f"{found.name}\n{found.address.text}".encode()).hexdigest()[:24]
        folder.mkdir(exist_ok=True)
        path = folder / RECORD
        _drop_torn_line(path)
        entries = _entries(path)
        progress = Progress()
        for entry in entries[1:]:
            if "progress" in entry:
                kept = entry["progress"]
                progress = Progress(Place(**kept["place"]), kept["failed"], kept["errors"], kept["output"])
        complete = any("complete" in entry for entry in entries)
        current = bool(entries) and entries[0] == identity
        return ObjectJournal(folder, identity, progress, complete, current, path.open("a", encoding="utf-8"))


def replace_durably(path: Path, content: bytes) -> None:
    """Write a file so that it is either the old or the new one, whatever happens."""
    beside = path.with_name(f".{path.name}.new")
    with beside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make names in a folder safe."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _entries(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a journal; a torn one ends it."""
    found = []
    try:
        with path.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    break
                found.append(json.loads(line))
    except FileNotFoundError:
        return []
    except ValueError:
        return found
    return found


def _drop_torn_line(path: Path) -> None:
    if not path.exists():
        return
    with path.open("r+b") as file:
        content = file.read()
        file.truncate(content.rfind(b"\n") + 1)


def _clear(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
