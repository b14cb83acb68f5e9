"""Takes secrets out of what is shown to others.

A value goes by the name it has: whatever is called a password, secret, token, key or credential,
in settings, in addresses with a user, and in lines of a log. What is left out is `REDACTED`.
It may take too much; it should not take too little.
"""

import re

REDACTED = "[redacted]"
# Tried from the start of a word only: else long words of a log take forever.
SECRET = (
    r"(?<![\w.-])[\w.-]*"  # noqa: S105
    r"(?:password|passwd|secret|token|credential|jaas|private|pepper|salt|\bkey\b)[\w.-]*"
)
NAMED = re.compile(
    rf"(?P<name>[\"']?{SECRET}[\"']?\s*[=:]\s*)"
    r"(?P<value>\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'|\[[^\]]*\]|[^\s,;}}]+)",
    re.IGNORECASE,
)
# The whole line goes: its value may have any form.
JAAS = re.compile(r"^(?P<name>[^\n=:]*jaas[^\n=:]*[=:]).*$", re.IGNORECASE | re.MULTILINE)
IN_ADDRESS = re.compile(r"(?P<name>\b\w{1,20}://[^\s/:@\"']+:)[^\s/@\"']+@")
AUTHORIZATION = re.compile(r"(?P<name>\b(?:basic|bearer)\s+)[\w.+/=~-]{6,}", re.IGNORECASE)
PEM = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
)


def redact(text: str) -> str:
    text = PEM.sub(REDACTED, text)
    text = JAAS.sub(rf"\g<name> {REDACTED}", text)
    text = IN_ADDRESS.sub(rf"\g<name>{REDACTED}@", text)
    text = AUTHORIZATION.sub(rf"\g<name>{REDACTED}", text)
    return NAMED.sub(rf'\g<name>"{REDACTED}"', text)


def is_secret(name: str) -> bool:
    """Whether a setting of this name is one that nobody should see."""
    return re.fullmatch(SECRET, name, re.IGNORECASE) is not None
