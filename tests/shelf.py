"""A multi-model server and short ways to speak to it, as the platform does."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from running import Endpoint

MULTI_MODEL = {"SAGEMAKER_MULTI_MODEL": "true"}
NO_MODEL = Path("/nonexistent")


class Shelf:
    """The control plane of an endpoint, by the names of models."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.http = endpoint.http

    def load(self, name: str, url: Path | str) -> httpx.Response:
        """POST /models."""
        return self.http.post("/models", json={"model_name": name, "url": str(url)})

    def unload(self, name: str) -> httpx.Response:
        """DELETE /models/{name}."""
        return self.http.delete(path(name))

    def describe(self, name: str) -> httpx.Response:
        """GET /models/{name}."""
        return self.http.get(path(name))

    def call(self, name: str, body: Any, content_type: str = "application/json", **headers: str) -> httpx.Response:
        """POST /models/{name}/invoke, as `Endpoint.invoke` does it."""
        content = body if isinstance(body, bytes | str) else json.dumps(body)
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        return self.http.post(f"{path(name)}/invoke", content=content, headers={"Content-Type": content_type, **named})

    def page(self, **query: Any) -> dict[str, Any]:
        """GET /models."""
        answer = self.http.get("/models", params=query)
        assert answer.status_code == 200, answer.text
        page: dict[str, Any] = answer.json()
        return page

    def names(self, limit: int = 100) -> list[str]:
        """The names of all models, page by page."""
        page = self.page(limit=limit)
        names = [model["modelName"] for model in page["models"]]
        while token := page.get("nextPageToken"):
            page = self.page(limit=limit, nextPageToken=token)
            names += [model["modelName"] for model in page["models"]]
        return names


def path(name: str) -> str:
    """The path of a model, whatever its name; clients take dots for steps up."""
    return f"/models/{quote(name, safe='').replace('.', '%2E')}"


def error(answer: httpx.Response) -> tuple[int, str, str]:
    """Status, type and message of an error."""
    told = answer.json()["error"]
    return answer.status_code, told["type"], told["message"]


def together(calls: Sequence[Callable[[], httpx.Response]]) -> list[httpx.Response]:
    """Make the calls side by side; their answers in order."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(lambda call: call(), calls))
