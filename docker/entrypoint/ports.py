"""Which ports everything but the serving port takes; all of them on loopback."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from batch_handler.settings import Settings
from entrypoint.failure import BAD_SETTING, StartError
from entrypoint.http import LOOPBACK

MANAGEMENT = 8081
FIRST_WORKER = 9000
LAST_PORT = 65_534


@dataclass(frozen=True, slots=True)
class Ports:
    """``first_worker`` begins a row of one port per worker; with Unix sockets they are only numbers."""

    management: int
    first_worker: int


def choose(settings: Settings, workers: int, is_free: Callable[[int], bool] | None = None) -> Ports:
    """From SAGEMAKER_SAFE_PORT_RANGE when it is set, else the usual ones or the next free ones.

    Raises StartError when the range holds too few.
    """
    check = is_free or (lambda port: bind_problem(LOOPBACK, port) is None)
    if settings.safe_port_range is None:
        management = next(_free_from(MANAGEMENT, check, {settings.port}), MANAGEMENT)
        row = _row(_free_from(FIRST_WORKER, check, {settings.port, management}), workers)
        return Ports(management, row or FIRST_WORKER)
    low, high = settings.safe_port_range
    usable = [port for port in range(low, high + 1) if port != settings.port and check(port)]
    first_worker = _row(usable, workers)
    rest = [port for port in usable if first_worker and not first_worker <= port < first_worker + workers]
    if first_worker is None or not rest:
        needed = 1 + workers
        raise StartError(
            f"SAGEMAKER_SAFE_PORT_RANGE={low}-{high} has {len(usable)} usable ports, but {needed} are needed "
            f"(management, {workers} in a row for the workers): use a range of at least {needed} beside the serving port",
            BAD_SETTING,
        )
    return Ports(rest[0], first_worker)


def check_serving_port(settings: Settings) -> None:
    """Raises StartError when the serving address cannot be bound."""
    problem = bind_problem(settings.bind_address, settings.port)
    sentences = {
        errno.EADDRINUSE: "is already in use: stop the other program or set SAGEMAKER_BIND_TO_PORT",
        errno.EACCES: "may not be bound by this user: set SAGEMAKER_BIND_TO_PORT to a port from 1024",
    }
    where = f"port {settings.port} on {settings.bind_address}"
    if problem in sentences:
        raise StartError(f"{where} {sentences[problem]}", BAD_SETTING)
    if problem is not None:
        sentence = f"BYOC_BIND_ADDRESS={settings.bind_address!r} is not accepted: use an IPv4 address of this machine"
        raise StartError(sentence, BAD_SETTING)


def bind_problem(address: str, port: int) -> int | None:
    """The errno of an attempt to listen there, or None. Connections in TIME_WAIT do not count, as for the server."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
            probe.listen(1)
        except OSError as error:
            return error.errno or errno.EADDRNOTAVAIL
    return None


def _free_from(start: int, check: Callable[[int], bool], taken: set[int]) -> Iterator[int]:
    return (port for port in range(start, LAST_PORT + 1) if port not in taken and check(port))


def _row(ports: Iterable[int], length: int) -> int | None:
    """The first of `length` consecutive ports."""
    start = previous = None
    for port in ports:
        start = port if previous is None or port != previous + 1 else start
        previous = port
        if start is not None and port - start + 1 == length:
            return start
    return None
