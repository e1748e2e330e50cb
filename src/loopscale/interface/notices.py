"""The notice that a run sends at its end: to a command, or as JSON to a URL.

The user's configuration names the command or the URL: `$LOOPSCALE_CONFIG`, else `loopscale/config.yaml` below
`$XDG_CONFIG_HOME` or `~/.config`:

    notify: https://hooks.slack.com/services/T000/B000/XXXX
    notify: mail -s "$LOOPSCALE_TEXT" me@example.org

A URL gets a POST with a JSON body. A command runs in a shell: environment variables `LOOPSCALE_EVENT`,
`LOOPSCALE_STUDY` and `LOOPSCALE_TEXT` hold the parts of the notice, and standard input holds the JSON body.
"""

import json
import os
import subprocess
import urllib.request
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import ValidationError

from loopscale.core.config import Config
from loopscale.errors import LoopscaleError
from loopscale.notation.files import read_yaml
from loopscale.notation.mistakes import Mistakes
from loopscale.notation.settings import validation_faults
from loopscale.redaction import redacted

TIMEOUT = 30.0
"""Seconds that a hook may take."""
SCHEMES = ("http", "https")
Event = Literal["done", "failed", "budget spent"]


class UserSettings(Config):
    """The user's configuration of all studies."""

    notify: str = ""
    """A command or an http(s) URL that gets a notice at the end of a run. Empty for none."""


@dataclass(frozen=True)
class Notice:
    """The end of a run. `text` is one line for a person. Slack and its likes show the key `text` of the JSON body."""

    event: Event
    study: str
    text: str

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), ensure_ascii=False).encode()


def user_settings() -> UserSettings:
    """The settings in the user's configuration file; the defaults without a file. Raises Mistakes."""
    named = os.environ.get("LOOPSCALE_CONFIG")
    # In containers the user may have no name and no home: expanduser then keeps ~, and there is no such file.
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    file = Path(named) if named else Path(home) / "loopscale" / "config.yaml"
    if not named and (home.startswith("~") or not file.exists()):
        return UserSettings()
    source = read_yaml(file)
    try:
        return UserSettings.model_validate(source.tree)
    except ValidationError as problem:
        faults = validation_faults(problem, UserSettings, source.tree)
        raise Mistakes(map(source.mistake, faults)) from None


def send_notice(notice: Notice, warn: Callable[[str], None]) -> None:
    """Send the notice to the user's hook, if there is one. A hook that fails causes one warning."""
    notice = replace(notice, text=redacted(notice.text))
    try:
        hook = user_settings().notify
        if urlsplit(hook).scheme in SCHEMES:
            _post(hook, notice)
        elif hook:
            _call(hook, notice)
    except (LoopscaleError, OSError, ValueError, subprocess.SubprocessError) as problem:
        reason = " ".join(str(problem).split()) or type(problem).__name__
        warn(redacted(f"the notice was not sent ({reason}); mend notify: in the user's configuration"))


def _post(url: str, notice: Notice) -> None:
    request = urllib.request.Request(
        url, notice.to_json(), {"Content-Type": "application/json"}, method="POST"
    )
    with urllib.request.urlopen(request, timeout=TIMEOUT):  # raises HTTPError, an OSError, for a refusal
        pass


def _call(command: str, notice: Notice) -> None:
    """Raises OSError or SubprocessError, also for an exit code other than 0."""
    parts = {f"LOOPSCALE_{name.upper()}": value for name, value in asdict(notice).items()}
    done = subprocess.run(
        command,
        shell=True,
        input=notice.to_json(),
        env=os.environ | parts,
        capture_output=True,
        timeout=TIMEOUT,
    )
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip().splitlines()
        program = command.split()[0]  # the other words may hold a password
        raise OSError(f"`{program}` ended with {done.returncode}" + (f": {words[-1]}" if words else ""))
