"""Accessibility checks by axe-core.

Pages are checked by `serious_findings`: an empty list means that axe finds nothing serious or
critical by the rules of WCAG 2.1 A and AA. The script comes out of a wheel on PyPI; the wheel is
not installed, because it depends on a browser driver that is not used here.
"""

import hashlib
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from tests.console.browser import Browser

WHEEL = "axe-playwright-python==0.1.8"
SHA256 = "fdd263c998388f1a8e67cad02677e612d946248bd44d163be5e8650ea31f95f8"
MEMBER = "axe_playwright_python/axe.min.js"
SCRIPT = Path(__file__).parents[2] / ".cache" / "axe-core" / f"{SHA256[:16]}.js"
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]


def axe_script() -> str:
    if not SCRIPT.exists():
        SCRIPT.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=SCRIPT.parent) as folder:
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            subprocess.run([*pip, "--dest", folder, WHEEL], check=True, timeout=120)
            (wheel,) = Path(folder).iterdir()
            found = hashlib.sha256(wheel.read_bytes()).hexdigest()
            if found != SHA256:
                raise OSError(f"{wheel.name} has the SHA-256 {found}, not {SHA256}")
            with zipfile.ZipFile(wheel) as package:
                Path(package.extract(MEMBER, folder)).rename(SCRIPT)
    return SCRIPT.read_text()


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
