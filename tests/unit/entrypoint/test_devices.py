"""GPUs as the entrypoint sees them: counted by the driver, hidden by CUDA_VISIBLE_DEVICES, refused in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

import nvidia
from batch_handler.internal import GPUS
from batch_handler.settings import SettingError, resolve
from entrypoint import devices, nvml
from entrypoint.devices import Devices, check_driver, choose, visible
from nvidia import Card, Machine

ONE, TWO = "GPU-11111111-aaaa-4000-8000-000000000001", "GPU-22222222-bbbb-4000-8000-000000000002"
SLICES = tuple(f"MIG-3333333{number}-cccc-4000-8000-000000000003" for number in range(2))
PAIR = Machine([Card(ONE), Card(TWO, used=20 * nvidia.GIB)])
SLICED = Machine([Card(ONE, slices=SLICES)])
CUDA = "12.8"


def found(monkeypatch: pytest.MonkeyPatch, machine: Machine) -> nvml.Inventory:
    nvidia.install(monkeypatch, machine)
    return nvml.inventory()


def identifiers(gpus: tuple[nvml.Gpu, ...]) -> list[str]:
    return [gpu.identifier for gpu in gpus]


def test_the_driver_is_asked_and_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    inventory = found(monkeypatch, PAIR)
    assert inventory.driver == "550.163.01"
    assert [(gpu.identifier, gpu.index, gpu.free_bytes // nvidia.GIB) for gpu in inventory.gpus] == [(ONE, 0, 23), (TWO, 1, 4)]
    assert PAIR.opened == 0


def test_slices_stand_in_the_place_of_the_gpu_that_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine([Card(TWO), Card(ONE, slices=SLICES)])
    gpus = found(monkeypatch, machine).gpus
    assert [(gpu.identifier, gpu.index, gpu.sliced) for gpu in gpus] == [(TWO, 0, False), *((one, 1, True) for one in SLICES)]


def test_a_machine_without_a_driver_has_no_gpus_and_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(monkeypatch, Machine(failing=nvidia.LIBRARY_NOT_FOUND)) == nvml.Inventory()


def test_a_driver_that_does_not_answer_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(monkeypatch, Machine(failing=nvidia.DRIVER_NOT_LOADED)).fault == "Driver Not Loaded"


def test_without_the_binding_nvidia_smi_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nvidia.uninstall(monkeypatch)
    monkeypatch.setenv("PATH", f"{nvidia.nvidia_smi(tmp_path, PAIR)}:/usr/bin:/bin")
    inventory = nvml.inventory()
    assert inventory.driver == "550.163.01"
    assert [(gpu.identifier, gpu.name, gpu.free_bytes // nvidia.GIB) for gpu in inventory.gpus] == [
        (ONE, "NVIDIA A10G", 23),
        (TWO, "NVIDIA A10G", 4),
    ]


def test_an_nvidia_smi_that_fails_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nvidia.uninstall(monkeypatch)
    monkeypatch.setenv("PATH", f"{nvidia.nvidia_smi(tmp_path, Machine(failing=nvidia.DRIVER_NOT_LOADED))}:/usr/bin:/bin")
    assert "couldn't communicate" in (nvml.inventory().fault or "")


def test_without_the_binding_and_nvidia_smi_there_is_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nvidia.uninstall(monkeypatch)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert nvml.inventory() == nvml.Inventory()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, [ONE, TWO]),
        ("0,1", [ONE, TWO]),
        ("1,0", [TWO, ONE]),
        (" 1 ", [TWO]),
        ("0, 1", [ONE, TWO]),
        (TWO, [TWO]),
        (f" {TWO} , {ONE}", [TWO, ONE]),
        ("GPU-2222", [TWO]),
        ("gpu-2222", [TWO]),
        ("", []),
        (" ", []),
        ("-1", []),
        ("0,-1,1", [ONE]),
        ("NoDevFiles", []),
    ],
)
def test_what_cuda_visible_devices_leaves(monkeypatch: pytest.MonkeyPatch, value: str | None, expected: list[str]) -> None:
    assert identifiers(visible(found(monkeypatch, PAIR).gpus, value)) == expected


@pytest.mark.parametrize("value", [SLICES[1], f" {SLICES[1]}", SLICES[1][:12]])
def test_a_slice_is_named_by_its_identifier(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    assert identifiers(visible(found(monkeypatch, SLICED).gpus, value)) == [SLICES[1]]


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("2", "'2' names nothing"),
        ("0,0", "'0' names it twice"),
        ("GPU-4", "'GPU-4' names nothing"),
        ("GPU-", "'GPU-' fits 2 of them"),
        ("all", "'all' names nothing"),
        ("0;1", "'0;1' names nothing"),
        ("²", "'²' names nothing"),
    ],
)
def test_an_entry_that_cuda_would_ignore_stops_the_start(monkeypatch: pytest.MonkeyPatch, value: str, fault: str) -> None:
    with pytest.raises(SettingError) as refused:
        visible(found(monkeypatch, PAIR).gpus, value)
    assert fault in str(refused.value)
    assert f"the GPUs here are 0 ({ONE}), 1 ({TWO})" in str(refused.value)


@pytest.mark.parametrize(
    ("machine", "value", "numbers"),
    [(PAIR, None, "0,1"), (PAIR, TWO, "1"), (PAIR, f"{TWO},{ONE}", "1,0"), (SLICED, None, "0,1"), (SLICED, SLICES[1], "0")],
)
def test_torchserve_reads_numbers_and_our_workers_identifiers(
    monkeypatch: pytest.MonkeyPatch, machine: Machine, value: str | None, numbers: str
) -> None:
    gpus = visible(found(monkeypatch, machine).gpus, value)
    variables = Devices(gpus).variables()
    assert variables["CUDA_VISIBLE_DEVICES"] == numbers
    assert variables["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert variables[GPUS].split(",") == identifiers(gpus)


def test_without_gpus_torchserve_reads_a_number_too() -> None:
    assert Devices().variables()["CUDA_VISIBLE_DEVICES"] == "-1"


@pytest.mark.parametrize(
    ("driver", "cuda", "names"),
    [
        ("470.256.02", "12.8", ("525", "=al2-ami-sagemaker-inference-gpu-2 ", "=al2-ami-sagemaker-batch-gpu-535)")),
        ("535.183.01", "13.0", ("580", "=al2023-ami-sagemaker-inference-gpu-4-1 ", "an image for CUDA 12")),
    ],
)
def test_a_driver_too_old_is_one_sentence_with_the_host_image_that_helps(driver: str, cuda: str, names: tuple[str, ...]) -> None:
    with pytest.raises(SettingError) as refused:
        check_driver(driver, cuda)
    assert all(name in str(refused.value) for name in (driver, f"CUDA {cuda}", *names))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("driver", "cuda"), [("525.60.13", "12.8"), ("580.65.06", "13.0"), ("580.65.06", "12.8"), ("unknown", "12.8")]
)
def test_a_driver_that_is_new_enough_passes(driver: str, cuda: str) -> None:
    check_driver(driver, cuda)


def test_the_driver_does_not_matter_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    old = found(monkeypatch, Machine([Card(ONE)], driver="418.0"))
    assert choose(resolve({"BYOC_DEVICE": "cpu"}), old, {}, CUDA, ours=True) == Devices()
    with pytest.raises(SettingError, match="BYOC_DEVICE=cpu"):
        choose(resolve({}), old, {}, CUDA, ours=True)


@pytest.mark.parametrize(
    ("machine", "variables", "why"),
    [
        (Machine(failing=nvidia.LIBRARY_NOT_FOUND), {}, "there is no NVIDIA driver here"),
        (Machine(failing=nvidia.DRIVER_NOT_LOADED), {}, r"the NVIDIA driver does not answer \(Driver Not Loaded\)"),
        (Machine([]), {}, "there is none here"),
        (PAIR, {"CUDA_VISIBLE_DEVICES": ""}, "CUDA_VISIBLE_DEVICES='' hides all 2 of this container"),
    ],
)
def test_without_a_gpu_cuda_is_refused_and_auto_serves_on_the_cpu_and_says_so(
    monkeypatch: pytest.MonkeyPatch, machine: Machine, variables: dict[str, str], why: str
) -> None:
    inventory = found(monkeypatch, machine)
    with pytest.raises(SettingError, match=f"BYOC_DEVICE=cuda is not accepted: no GPU can be used, {why}"):
        choose(resolve({"BYOC_DEVICE": "cuda"}), inventory, variables, CUDA, ours=True)
    chosen = choose(resolve({}), inventory, variables, CUDA, ours=True)
    assert chosen.gpus == ()
    assert "serves on the CPU" in (chosen.note or "")


def test_a_torch_of_cpus_serves_without_a_word_unless_cuda_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    inventory = found(monkeypatch, PAIR)
    assert choose(resolve({}), inventory, {}, None, ours=True) == Devices()
    with pytest.raises(SettingError, match="torch here is built for CPUs alone; use the GPU image"):
        choose(resolve({"BYOC_DEVICE": "cuda"}), inventory, {}, None, ours=True)


def test_a_foreign_handler_gets_one_slice_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingError, match="give the container a single one"):
        choose(resolve({}), found(monkeypatch, SLICED), {"CUDA_VISIBLE_DEVICES": SLICES[1]}, CUDA, ours=False)
    single = found(monkeypatch, Machine([Card(ONE, slices=SLICES[:1])]))
    assert identifiers(choose(resolve({}), single, {}, CUDA, ours=False).gpus) == [SLICES[0]]


def test_the_cuda_of_torch_is_read_without_importing_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("raise AssertionError('imported')\n")
    monkeypatch.setattr(devices, "find_spec", lambda name: type("Spec", (), {"origin": str(package / "__init__.py")}))
    for line, expected in (
        ("cuda: Optional[str] = '12.8'", "12.8"),
        ('cuda = "13.0"', "13.0"),
        ("cuda: str | None = None", None),
    ):
        (package / "version.py").write_text(f"debug = False\n{line}\nhip: Optional[str] = None\n")
        assert devices.cuda_of_torch() == expected
