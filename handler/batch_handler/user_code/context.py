"""What a script's function gets when it takes a context: TorchServe's methods over the requests of one call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from batch_handler.request import Request


@dataclass(slots=True)
class Reply:
    """What a script said about one answer beside its body; None where it said nothing."""

    status: int | None = None
    content_type: str | None = None
    headers: dict[str, str] = field(default_factory=dict)


class AnyCase(Mapping[str, str]):
    """HTTP headers as a mapping whose names compare without case (RFC 9110, section 5.1)."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class Context:
    """One call's requests, counted from 0 as TorchServe counts them; a call for a single request has only index 0."""

    def __init__(self, model_dir: Path, requests: Sequence[Request] = (), replies: Sequence[Reply] | None = None) -> None:
        self.model_name = "model"
        self.model_dir = str(model_dir)
        self.manifest: Mapping[str, object] = {}
        self.system_properties = {"model_dir": str(model_dir), "batch_size": len(requests), "gpu_id": None}
        self.requests = list(requests)
        self.replies = list(replies) if replies is not None else [Reply() for _ in requests]

    @classmethod
    def joined(cls, contexts: Sequence[Context]) -> Context:
        """One context over the requests of several; what is said through either is said of the same answers."""
        requests = [request for context in contexts for request in context.requests]
        replies = [reply for context in contexts for reply in context.replies]
        return cls(Path(contexts[0].model_dir), requests, replies)

    @property
    def request_processor(self) -> Sequence[RequestProperties]:
        """TorchServe's older way to the headers: ``context.request_processor[0].get_request_properties()``."""
        return [RequestProperties(self, index) for index in range(len(self.requests))]

    def get_request_id(self, idx: int = 0) -> str:
        """The id by which the log knows the request."""
        return self.requests[idx].id

    def get_request_header(self, idx: int, key: str) -> str | None:
        """One header, its name in any case."""
        return self.requests[idx].headers.get(key)

    def get_all_request_header(self, idx: int) -> Mapping[str, str]:
        """All headers of a request."""
        return AnyCase(self.requests[idx].headers.as_mapping())

    def set_response_status(self, code: int = 200, phrase: str = "", idx: int = 0) -> None:
        """Answer with this status; the phrase is always the status's own."""
        self.replies[idx].status = int(code)

    def set_response_content_type(self, idx: int, value: str) -> None:
        """Label the answer so, unless ``output_fn`` itself names a type."""
        self.replies[idx].content_type = str(value)

    def set_response_header(self, idx: int, key: str, value: str) -> None:
        """Send this header with the answer."""
        self.replies[idx].headers[str(key)] = str(value)


@dataclass(frozen=True, slots=True)
class RequestProperties:
    """One request's headers, as ``request_processor`` gives them."""

    context: Context
    index: int

    def get_request_properties(self) -> Mapping[str, str]:
        """All headers."""
        return self.context.get_all_request_header(self.index)

    def get_request_property(self, key: str) -> str | None:
        """One header."""
        return self.context.get_request_header(self.index, key)
