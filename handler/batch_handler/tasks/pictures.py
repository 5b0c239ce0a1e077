"""Pictures to pixel tensors: bytes or base64, decoded within bounds, then the artefact's own image processor.

Nothing is decoded before its size is known: a file of a few kilobytes may claim gigabytes of pixels.
"""

from __future__ import annotations

import base64
import binascii
import io
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from PIL import Image, ImageOps, UnidentifiedImageError
from transformers import AutoImageProcessor

from batch_handler.errors import ServiceError, invalid_record, quote
from batch_handler.formats.images import MEDIA_TYPES
from batch_handler.request import Record
from batch_handler.settings import Settings
from batch_handler.tasks import Encoded
from batch_handler.tasks.parameters import Parameter, checked

PIXEL_LIMIT = 50_000_000
"""More than any usual camera gives. While it is processed it takes 650 MB."""
LARGE = 16_000_000
"""Pixels beyond which pictures are processed one at a time, for the memory's sake."""
MOST_READS = 200_000
"""Times that a file is read from; a PNG of 25 MB in chunks of 8 KiB takes 10,000."""
USUAL_PATCH = 16
ACCEPTED = "a JPEG, PNG or WebP picture"


class Pictures:
    """Records to pixel tensors, channels × height × width. Pictures of different shapes never share a forward pass."""

    def __init__(self, directory: Path, settings: Settings, config: Any) -> None:
        self._processor: Any = AutoImageProcessor.from_pretrained(  # type: ignore[no-untyped-call]  # not annotated there
            directory, local_files_only=True, trust_remote_code=settings.trust_remote_code, backend="pil"
        )
        patch = getattr(config, "patch_size", None)
        self._patch = patch if isinstance(patch, int) and patch > 0 else USUAL_PATCH
        self._one_large = threading.Lock()

    def encode(self, records: Sequence[Record], known: Mapping[str, Parameter]) -> list[Encoded | ServiceError]:
        """Check, decode and process; ``length`` counts the patches that the model sees."""
        return [self._encoded(record, known) for record in records]

    def _encoded(self, record: Record, known: Mapping[str, Parameter]) -> Encoded | ServiceError:
        try:
            parameters = checked(record.parameters, known)
            file = opened(record.inputs)
            with self._one_large if file.width * file.height > LARGE else nullcontext():
                pixels = self._processor(images=decoded(file), return_tensors="np")["pixel_values"][0]
        except ServiceError as error:
            return error
        height, width = pixels.shape[-2:]
        length = -(-height // self._patch) * -(-width // self._patch)
        return Encoded(pixels, length, group=pixels.shape, options=parameters)


class _File(io.BytesIO):
    """Bytes that end with an error after so many reads: Pillow looks for a JPEG's next marker byte by byte, for half a
    minute where there are 25 MB of none, and goes through a PNG's chunks one by one.
    """

    _reads = 0

    def read(self, size: int | None = -1) -> bytes:
        self._reads += 1
        if self._reads > MOST_READS:
            raise OSError("too many pieces")
        return super().read(size)


def pixels_of(record: Record) -> int:
    """How many pixels a record's picture has, before any is decoded; 0 where it is none that could be."""
    try:
        file = opened(record.inputs)
    except ServiceError:
        return 0
    return int(file.width * file.height)


def opened(inputs: Any) -> Any:
    """A picture of which only the header was read. Raises ServiceError (400) for one that is broken, too large or none."""
    with _faults_told():
        file = Image.open(_File(_bytes(inputs)), formats=tuple(MEDIA_TYPES.values()))
        if file.width * file.height > PIXEL_LIMIT:
            raise _too_large()
        return file


def decoded(file: Any) -> Any:
    """The picture upright and in RGB. Raises ServiceError (400) for a broken one."""
    with _faults_told():
        return ImageOps.exif_transpose(file).convert("RGB")


@contextmanager
def _faults_told() -> Iterator[None]:
    try:
        yield
    except UnidentifiedImageError:
        raise invalid_record(f"the bytes are not {ACCEPTED}") from None
    except Image.DecompressionBombError:
        raise _too_large() from None
    except ServiceError:
        raise
    except Exception as error:  # noqa: BLE001 - decoders raise whatever a damaged file leads them to
        raise invalid_record(f"the picture is damaged or incomplete ({type(error).__name__})") from None


def sample() -> str:
    """A small grey picture as base64, for warming up."""
    buffer = io.BytesIO()
    Image.new("RGB", (64, 48), (127, 127, 127)).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def _bytes(inputs: Any) -> bytes:
    if isinstance(inputs, bytes):
        return inputs
    if not isinstance(inputs, str):
        raise invalid_record(f"'inputs' must be {ACCEPTED} as a base64 text, not {quote(inputs)}")
    if inputs.startswith(("http://", "https://")):
        raise invalid_record(f"'inputs' is an address, and nothing is downloaded: send {ACCEPTED} as a base64 text")
    encoded = inputs.partition(",")[2] if inputs.startswith("data:") else inputs
    try:
        return base64.b64decode("".join(encoded.split()), validate=True)
    except (binascii.Error, ValueError):
        raise invalid_record(f"'inputs' is not base64: send {ACCEPTED} as a base64 text, or its bytes as image/*") from None


def _too_large() -> ServiceError:
    return invalid_record(f"the picture has more than {PIXEL_LIMIT // 1_000_000} million pixels: send a smaller one")
