"""image-classification and image-feature-extraction equal the Hugging Face pipelines, and refuse what is no picture."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
from PIL import Image

from asking import answers
from batch_handler.artefact import detect
from batch_handler.errors import ServiceError
from batch_handler.pipeline import Pipeline
from batch_handler.request import Headers, Record, Request
from batch_handler.settings import Settings
from batch_handler.tasks import Encoded, Task, load
from models import vision

TOLERANCE = 1e-5
FORMS = {"PNG": {}, "JPEG": {"quality": 90}, "WEBP": {"lossless": True}}
Find = Callable[..., Path]
Make = Callable[..., Settings]

pytestmark = pytest.mark.usefixtures("single_threaded")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Find:
    """An artefact with random weights, built once."""
    built: dict[tuple[str, bool], Path] = {}

    def find(architecture: str = "vit", head: bool = True) -> Path:
        if (architecture, head) not in built:
            built[architecture, head] = vision.save(tmp_path_factory.mktemp(architecture) / "model", architecture, head)
        return built[architecture, head]

    return find


@pytest.fixture(scope="module")
def classification(directory: Find, settings: Make) -> Callable[..., Task]:
    """The task by architecture, loaded once."""
    loaded: dict[str, Task] = {}

    def find(architecture: str = "vit") -> Task:
        if architecture not in loaded:
            loaded[architecture] = load("image-classification", directory(architecture), settings())
        return loaded[architecture]

    return find


def reference(task: str, directory: Path) -> Any:
    """The pipeline."""
    from transformers import pipeline

    return pipeline(task, str(directory), device="cpu")


def bodies() -> list[tuple[bytes, Image.Image]]:
    """Pictures in every form and mode, as bytes and as Pillow reads them."""
    files = [vision.encoded(vision.pixels(seed), form, **options) for seed, (form, options) in enumerate(FORMS.items())]
    files.append(vision.encoded(vision.pixels(7, 31, 57).convert("RGBA")))
    files.append(vision.encoded(vision.pixels(8, 90, 20).convert("L")))
    files.append(vision.encoded(vision.pixels(9).convert("P")))
    return [(file, _opened(file)) for file in files]


def _opened(file: bytes) -> Image.Image:
    import io

    return Image.open(io.BytesIO(file))


def agree(ours: Any, theirs: Any) -> None:
    assert [entry["label"] for entry in ours] == [entry["label"] for entry in theirs]
    assert [entry["score"] for entry in ours] == pytest.approx([entry["score"] for entry in theirs], abs=TOLERANCE)


@pytest.mark.parametrize(
    "parameters", [{}, {"top_k": 2}, {"top_k": 100}, {"function_to_apply": "sigmoid"}, {"function_to_apply": "none", "top_k": 7}]
)
@pytest.mark.parametrize("architecture", ["vit", "resnet", "convnext"])
def test_labels_equal_the_pipelines(
    classification: Callable[..., Task], directory: Find, architecture: str, parameters: dict[str, Any]
) -> None:
    files = bodies()
    plain = reference("image-classification", directory(architecture))
    for ours, (_, opened) in zip(
        answers(classification(architecture), [file for file, _ in files], parameters), files, strict=True
    ):
        agree(ours, plain(opened, **parameters))


@pytest.mark.parametrize("pool", [False, True])
@pytest.mark.parametrize("architecture", ["vit", "resnet"])
def test_features_equal_the_pipelines(directory: Find, settings: Make, architecture: str, pool: bool) -> None:
    files = bodies()
    path = directory(architecture, head=False)
    plain = reference("image-feature-extraction", path)
    task = load("image-feature-extraction", path, settings())
    for ours, (_, opened) in zip(answers(task, [file for file, _ in files], {"pool": pool}), files, strict=True):
        assert numpy.abs(ours - numpy.array(plain(opened, pool=pool))[0]).max() < TOLERANCE


@pytest.mark.parametrize("prefix", ["", "data:image/png;base64,"])
def test_base64_is_the_same_picture(classification: Callable[..., Task], prefix: str) -> None:
    file = vision.encoded(vision.pixels(1))
    text = prefix + base64.encodebytes(file).decode()
    plain, encoded = answers(classification(), [file, text])
    assert plain == encoded


def test_neighbours_change_nothing(classification: Callable[..., Task]) -> None:
    files = [file for file, _ in bodies()]
    for file, together in zip(files, answers(classification(), files), strict=True):
        agree(answers(classification(), [file])[0], together)


def test_pictures_of_different_shapes_do_not_meet(directory: Find, settings: Make, tmp_path: Path) -> None:
    path = vision.save(tmp_path, "resnet")
    config = path / "preprocessor_config.json"
    config.write_text(config.read_text().replace('"do_resize": true', '"do_resize": false'))
    task = load("image-classification", path, settings())
    files = [vision.encoded(vision.pixels(seed, width, 32)) for seed, width in enumerate((32, 48, 32))]
    encoded = [one for one in task.encode([Record(file, 1) for file in files]) if isinstance(one, Encoded)]
    assert len({one.group for one in encoded}) == 2
    assert encoded[1].length == 6
    assert len(answers(task, files)) == 3


def test_the_camera_held_upright_is_heeded(classification: Callable[..., Task]) -> None:
    picture = vision.pixels(5, 60, 20)
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter turn
    turned = vision.encoded(picture.rotate(90, expand=True), "PNG", exif=exif)
    plain, upright = answers(classification(), [vision.encoded(picture), turned])
    agree(upright, plain)


def bomb(width: int, height: int) -> bytes:
    """A PNG that claims so many pixels, in a hundred bytes."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 64)) + chunk(b"IEND", b"")


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        (b"no picture", "are not a JPEG, PNG or WebP picture"),
        (b"", "are not a JPEG, PNG or WebP picture"),
        (vision.encoded(vision.pixels(1), "GIF"), "are not a JPEG, PNG or WebP picture"),
        (vision.encoded(vision.pixels(1))[:200], "damaged or incomplete"),
        (vision.encoded(vision.pixels(1, 400, 300), "JPEG")[:2_000], "damaged or incomplete"),
        (b"\xff\xd8" + b"\xff" * 1_000_000, "damaged or incomplete"),
        (b"\xff\xd8\xff" + b"\0" * 1_000_000, "damaged or incomplete"),
        (bomb(8_000, 8_000), "more than 50 million pixels"),
        (bomb(12_000, 12_000), "more than 50 million pixels"),
        (bomb(60_000, 60_000), "more than 50 million pixels"),
        ("%%%", "is not base64"),
        ("aGVsbG8=", "are not a JPEG"),
        ("http://example.com/cat.png", "nothing is downloaded"),
        (5, "as a base64 text"),
        ({"image": "x"}, "as a base64 text"),
    ],
    ids=range(15),
)
def test_what_is_no_picture_is_that_records_error(classification: Callable[..., Task], inputs: Any, said: str) -> None:
    bad, good = answers(classification(), [inputs, vision.encoded(vision.pixels(1))])
    assert isinstance(bad, ServiceError)
    assert bad.status == 400
    assert said in bad.message
    assert len(good) == 5


@pytest.mark.parametrize("parameters", [{"topk": 1}, {"top_k": 0}, {"function_to_apply": "relu"}])
def test_a_wrong_parameter_is_that_records_error(classification: Callable[..., Task], parameters: dict[str, Any]) -> None:
    (bad,) = answers(classification(), [vision.encoded(vision.pixels(1))], parameters)
    assert isinstance(bad, ServiceError)
    assert bad.status == 400


def test_a_body_of_image_type_is_one_record_and_its_answer_is_json(classification: Callable[..., Task], settings: Make) -> None:
    pipeline = Pipeline(classification(), settings())
    pipeline.warm_up()
    file = vision.encoded(vision.pixels(1), "WEBP", lossless=True)
    requests = [
        Request("1", Headers([("Content-Type", "image/webp")]), file),
        Request("2", Headers([("Content-Type", "text/plain")]), b"a line"),
        Request("3", Headers([("Content-Type", "image/gif")]), file),
        Request("4", Headers([("Content-Type", "image/png"), ("Accept", "text/csv")]), file),
        Request("5", Headers([("Content-Type", "image/png")]), b"\xff\xfe broken"),
    ]
    responses = pipeline(requests).responses
    assert [response.status for response in responses] == [200, 415, 415, 200, 400]
    assert responses[0].content_type == "application/json"
    assert responses[0].body.startswith(b'[{"label":"L')
    assert responses[3].body.startswith(b"L")
    assert b"image/jpeg" in responses[1].body


def test_text_models_take_no_pictures(artefact: Find, settings: Make) -> None:
    pipeline = Pipeline(load("text-classification", artefact("bert"), settings()), settings())
    (response,) = pipeline([Request("1", Headers([("Content-Type", "image/png")]), b"x")]).responses
    assert response.status == 415
    assert b"image" not in response.body.replace(b"'image/png'", b"")


@pytest.mark.parametrize(("head", "task"), [(True, "image-classification"), (False, "image-feature-extraction")])
def test_a_directory_of_a_picture_model_needs_no_tokenizer(directory: Find, head: bool, task: str) -> None:
    for architecture in ("vit", "resnet"):
        assert detect(directory(architecture, head)).task == task
