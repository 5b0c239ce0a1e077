from __future__ import annotations

import socket

import pytest

from batch_handler.settings import resolve
from entrypoint.failure import StartError
from entrypoint.ports import Ports, bind_problem, check_serving_port, choose


def free(_port: int) -> bool:
    return True


def test_without_a_range_the_usual_ports_are_taken() -> None:
    assert choose(resolve({}), 1, free) == Ports(8081, 9000)


@pytest.mark.parametrize(
    ("serving", "expected"),
    [
        ("8081", Ports(8082, 9000)),
        ("9001", Ports(8081, 9002)),
    ],
)
def test_the_serving_port_is_never_taken_twice(serving: str, expected: Ports) -> None:
    assert choose(resolve({"SAGEMAKER_BIND_TO_PORT": serving}), 2, free) == expected


def test_busy_ports_are_passed_over() -> None:
    busy = {8081, 8082, 8083, 9001}
    assert choose(resolve({}), 2, lambda port: port not in busy) == Ports(8084, 9002)


def test_a_range_is_never_left() -> None:
    settings = resolve({"SAGEMAKER_SAFE_PORT_RANGE": "9100-9103", "SAGEMAKER_BIND_TO_PORT": "9102"})
    chosen = choose(settings, 2, free)
    workers = {chosen.first_worker, chosen.first_worker + 1}
    assert workers == {9100, 9101}
    assert chosen.management == 9103


@pytest.mark.parametrize("ports", ["9000-9000", "8080-8081"])
def test_a_port_range_that_is_too_small_stops_the_start(ports: str) -> None:
    with pytest.raises(StartError, match=r"SAGEMAKER_SAFE_PORT_RANGE=.* 2 are needed") as failure:
        choose(resolve({"SAGEMAKER_SAFE_PORT_RANGE": ports}), 1, free)
    assert failure.value.code == 2


def test_the_workers_of_a_broken_row_find_no_place() -> None:
    with pytest.raises(StartError, match="4 are needed"):
        choose(resolve({"SAGEMAKER_SAFE_PORT_RANGE": "9000-9006"}), 3, lambda port: port % 2 == 0)


def test_a_busy_serving_port_stops_the_start() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen(1)
        port = str(other.getsockname()[1])
        with pytest.raises(StartError, match=f"port {port} on 127.0.0.1 is already in use"):
            check_serving_port(resolve({"SAGEMAKER_BIND_TO_PORT": port, "BYOC_BIND_ADDRESS": "127.0.0.1"}))
    assert bind_problem("127.0.0.1", int(port)) is None


@pytest.mark.parametrize("address", ["::1", "192.0.2.1", "not an address"])
def test_an_address_that_is_not_ours_stops_the_start(address: str) -> None:
    with pytest.raises(StartError, match="BYOC_BIND_ADDRESS"):
        check_serving_port(resolve({"SAGEMAKER_BIND_TO_PORT": "28999", "BYOC_BIND_ADDRESS": address}))
