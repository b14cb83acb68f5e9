"""Redacts secrets in text that the user may share.

A value is redacted because of its name: password, secret, token, key, credential and the like, in
settings, in URLs with a user, and in log lines. Redacting too much is acceptable, too little is
not.
"""

import re

REDACTED = "[redacted]"
# Matches from the start of a word only; otherwise long words take quadratic time.
SECRET = (
    r"(?<![\w.-])[\w.-]*"  # noqa: S105
    r"(?:password|passwd|secret|token|credential|jaas|private|pepper|salt|\bkey\b)[\w.-]*"
)
NAMED = re.compile(
    rf"(?P<name>[\"']?{SECRET}[\"']?\s*[=:]\s*)"
    r"(?P<value>\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'|\[[^\]]*\]|[^\s,;}}]+)",
    re.IGNORECASE,
)
# The whole line is redacted: its value may have any form.
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
    """Returns True if the value of a setting of this name is secret."""
    return re.fullmatch(SECRET, name, re.IGNORECASE) is not None
