"""Static files of the console: pages, scripts and styles in `static`.

They are read once, at the first request. Browsers cache and revalidate them (ETag), so that a new
version of the broker is used at once and no file is sent twice.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from penstock.base.ports import Workers

FOLDER = Path(__file__).parent / "static"
INDEX = "index.html"
MEDIA_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
NOT_FOUND, NOT_MODIFIED = 404, 304


@dataclass(frozen=True, slots=True)
class Asset:
    body: bytes
    media_type: str
    etag: str


class Assets:
    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._assets: dict[str, Asset] | None = None

    async def answer(self, request: Request, name: str) -> Response:
        if self._assets is None:
            self._assets = await self._workers.run(read_all)
        asset = self._assets.get(name)
        if asset is None:
            raise HTTPException(NOT_FOUND)
        headers = {"etag": asset.etag, "cache-control": "no-cache"}
        if asset.etag in request.headers.get("if-none-match", ""):
            return Response(status_code=NOT_MODIFIED, headers=headers)
        return Response(asset.body, headers=headers, media_type=asset.media_type)


def read_all() -> dict[str, Asset]:
    """Reads all files; returns them by their paths below `static`."""
    found: dict[str, Asset] = {}
    for path in sorted(FOLDER.rglob("*")):
        if path.suffix in MEDIA_TYPES:
            body = path.read_bytes()
            etag = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
            name = path.relative_to(FOLDER).as_posix()
            found[name] = Asset(body, MEDIA_TYPES[path.suffix], etag)
    return found
