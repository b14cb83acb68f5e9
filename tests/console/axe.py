"""Accessibility checks by axe-core, downloaded from npm once and verified by its hash.

Pages are checked by `serious_findings`: an empty list means that axe finds nothing serious or
critical by the rules of WCAG 2.1 A and AA.
"""

import base64
import hashlib
import io
import json
import os
import tarfile
import urllib.request
from pathlib import Path

from tests.console.browser import Browser

VERSION = "4.10.3"
URL = f"https://registry.npmjs.org/axe-core/-/axe-core-{VERSION}.tgz"
SHA512 = "Xm7bpRXnDSX2YE2YFfBk2FnF0ep6tmG7xPh8iHee8MIcrgq762Nkce856dYtJYLkuIoYZvGfTs/PbZhideTcEg=="
FOLDER = Path(__file__).parents[2] / ".cache" / "axe-core" / VERSION
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]


def axe_script() -> str:
    path = FOLDER / "axe.min.js"
    if not path.exists():
        with urllib.request.urlopen(URL, timeout=60) as response:
            data = response.read()
        found = base64.b64encode(hashlib.sha512(data).digest()).decode()
        if found != SHA512:
            raise OSError(f"{URL} has the SHA-512 {found}, not {SHA512}")
        with tarfile.open(fileobj=io.BytesIO(data)) as package:
            member = package.extractfile("package/axe.min.js")
            assert member is not None
            FOLDER.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(f".{os.getpid()}")
            part.write_bytes(member.read())
            part.rename(path)
    return path.read_text()


def serious_findings(browser: Browser) -> list[str]:
    """Returns the serious and critical findings on the page that is open."""
    if not browser.run("Boolean(window.axe)"):
        browser.run(axe_script() + "; true")
    script = f"""axe.run(document, {{runOnly: {json.dumps(TAGS)}}}).then((found) => found.violations
      .filter((one) => ['serious', 'critical'].includes(one.impact))
      .flatMap((one) => one.nodes.map((node) =>
        `${{one.id}}: ${{node.target}} ${{node.any.map((why) => why.message).join('; ')}}`)))"""
    found: list[str] = browser.run(script)
    return found
