"""Leaving root behind before anything of the artefact is opened, where that is possible and the artefact allows it.

The whole process changes, not only java: an artefact is then not unpacked and parsed as root either, and signals
need no capability.
"""

from __future__ import annotations

import os
import pwd
from pathlib import Path

ACCOUNT = "byoc"
STATUS = Path("/proc/self/status")
# linux/capability.h
CAP_SETGID = 6
CAP_SETUID = 7


def drop(artefact: Path, status: Path = STATUS) -> str | None:
    """Become the unprivileged user, or say in one line why not; None when there is nothing to say.

    Nothing is changed unless that user can read all of the artefact.
    """
    if os.geteuid() != 0:
        return None
    try:
        account = pwd.getpwnam(ACCOUNT)
    except KeyError:
        return None
    if not can_change_user(status):
        return f"stays root: without the capabilities SETUID and SETGID it cannot become {ACCOUNT}"
    if artefact.exists() and not readable_by(account.pw_uid, account.pw_gid, artefact):
        return f"stays root: {ACCOUNT} (uid {account.pw_uid}) cannot read all of {artefact}"
    become(account.pw_uid, account.pw_gid)
    os.environ["HOME"] = account.pw_dir
    os.environ["USER"] = ACCOUNT
    return None


def can_change_user(status: Path = STATUS) -> bool:
    """Whether the effective capabilities hold SETUID and SETGID (proc(5), CapEff)."""
    for line in status.read_text("ascii", "replace").splitlines():
        if line.startswith("CapEff:"):
            effective = int(line.split()[1], 16)
            return all(effective >> capability & 1 for capability in (CAP_SETUID, CAP_SETGID))
    return False


def readable_by(uid: int, gid: int, path: Path) -> bool:
    """Try it, in a child that has become that user: only the kernel knows modes, ACLs and mounts together."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            become(uid, gid)
            code = 0 if _can_read(path) else 1
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == 0


def become(uid: int, gid: int) -> None:
    """Change all of this process's identities, for good."""
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def _can_read(path: Path) -> bool:
    if not path.is_dir():
        with path.open("rb"):
            return True
    if not os.access(path, os.R_OK | os.X_OK):
        return False
    return all(_can_read(entry) for entry in path.iterdir() if entry.exists() or not entry.is_symlink())
