"""Reads the schema registry over HTTP, with the user's name and password if there are any."""

import asyncio
import base64
import json
import urllib.parse
from collections.abc import Mapping
from typing import Any, Final

from penstock.cli.mcp.command_runner import CommandFailed
from penstock.runtime.http_request import ask_web, is_readable

TIMEOUT_SECONDS: Final = 10.0


class SchemaRegistry:
    """Schema registry at the HTTP port of a node."""

    def __init__(self, url: str, security: Mapping[str, str]) -> None:
        self._url = url.rstrip("/")
        self._headers = {"Accept": "application/json"}
        user, password = security.get("sasl.username"), security.get("sasl.password")
        # Passwords leave this machine only over TLS.
        if user is not None and password is not None and is_readable(url):
            login = base64.b64encode(f"{user}:{password}".encode()).decode()
            self._headers["Authorization"] = f"Basic {login}"

    async def subjects(self) -> Any:
        names = await self._get("/subjects")
        return {name: await self._get(f"/subjects/{_quote(name)}/versions") for name in names}

    async def version(self, subject: str, version: str) -> Any:
        return await self._get(f"/subjects/{_quote(subject)}/versions/{_quote(version)}")

    async def _get(self, path: str) -> Any:
        url = self._url + path
        loop = asyncio.get_running_loop()
        try:
            status, body = await loop.run_in_executor(
                None, ask_web, "GET", url, None, self._headers, TIMEOUT_SECONDS
            )
        except OSError as error:
            raise CommandFailed(
                f"the schema registry at {self._url} cannot be reached: {error}; start `penstock "
                "mcp` with --http URL"
            ) from error
        if status != 200:
            raise CommandFailed(f"the schema registry answered {status}: {body[:500]!r}")
        return json.loads(body)


def _quote(name: str) -> str:
    return urllib.parse.quote(name, safe="")
