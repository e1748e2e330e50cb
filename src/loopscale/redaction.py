"""Take passwords out of texts that are printed, recorded, exported or sent.

Errors, tags, tables of an export, notices, logs and the commands of clusters all use `redacted`.
"""

import os
import re
import sys
from collections.abc import Iterable, Iterator
from urllib.parse import quote, unquote

MASK = "***"
STORE_PASSWORD = "LOOPSCALE_STORE_PASSWORD"
"""The variable with the password of a store whose address names a user alone. Commands show their addresses."""
LOGIN = re.compile(r"(?<![\w+.-])([a-zA-Z][\w+.-]*://)([^\s:/?#@'\"`]*):((?:(?!://)[^\s'\"`<>])*)@")
"""Scheme, user and password of an address. A password may hold `/`, `:` and `@`."""
PORT = re.compile(r"\d{1,5}(?:[/?#]|$)")
"""Begins the rest of an address without a user, such as `host:5000/page@2`."""
SECRET_NAME = r"[\w.-]*(?:password|passwd|pwd|secret|token|api[_-]?key|access[_-]?key)"
ASSIGNED = re.compile(
    rf"(?i)(?<![\w.-])({SECRET_NAME}(?:\s*=\s*|[\"']\s*:\s*))(\"[^\"\n]*\"|'[^'\n]*'|[^\s&;,'\"]+)"
)
"""A setting whose name says that its value is secret: `password=...`, `"token": ...`, `&sslpassword=...`."""
SECRET_OPTION = re.compile(rf"(?i)(?<!\S)(--?{SECRET_NAME}\s+)(\S+)")
HEADER = re.compile(r"(?i)\b(bearer|basic)(\s+)[\w.~+/=-]{8,}")
SECRET_VARIABLE = re.compile(r"(?i)(?:password|passwd|secret|secret_access_key|token|api_key)$")
"""Names of environment variables whose values are secret."""
SHORTEST = 6
"""Shorter secrets are not searched for outside of addresses: they also occur in innocent words."""


def redacted(text: str) -> str:
    """The text without passwords: those of addresses and settings in it, and those that this process was given."""
    text = LOGIN.sub(_without_password, text)
    text = ASSIGNED.sub(lambda match: match[1] + MASK, text)
    text = SECRET_OPTION.sub(lambda match: match[1] + MASK, text)
    text = HEADER.sub(lambda match: f"{match[1]}{match[2]}{MASK}", text)
    for secret in _known_secrets():
        if secret in text:
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", MASK, text)
    return text


def redacted_command(words: Iterable[str]) -> str:
    """The words of a command as one text, without passwords. A password with spaces is one word here."""
    return " ".join(redacted(without_password(word)) for word in words)


def without_password(address: str) -> str:
    """The address without its password, which may hold any character."""
    password = password_of(address)
    before, _, host = address.rpartition("@")
    return address if password is None else f"{before.removesuffix(f':{password}')}@{host}"


def password_of(address: str) -> str | None:
    """The password of an address as the address writes it; None without a password."""
    login, at, _ = address.rpartition("@")
    scheme, slashes, login = login.partition("://")
    user, colon, password = login.partition(":")
    if not (at and slashes and colon and re.fullmatch(r"[a-zA-Z][\w+.-]*", scheme)) or "/" in user:
        return None
    return None if PORT.match(password) and "/" in password else password


def _without_password(match: re.Match[str]) -> str:
    if PORT.match(match[3]) and "/" in match[3]:
        return match[0]
    return f"{match[1]}{match[2]}@"


def _known_secrets() -> Iterator[str]:
    """The secrets in the environment and in the command of this process, the longest first."""
    variables = [value for name, value in os.environ.items() if SECRET_VARIABLE.search(name)]
    logins = [text for text in (*os.environ.values(), *sys.argv) if "://" in text and "@" in text]
    passwords = [(password, text) for text in logins if (password := password_of(text))]
    # A password that is also the name of the user occurs in innocent texts.
    named = [password for password, text in passwords if f"//{password}:" not in text]
    spellings = {spelling for each in (*variables, *named) for spelling in (each, unquote(each), quote(each))}
    yield from sorted((each for each in spellings if len(each) >= SHORTEST), key=len, reverse=True)
