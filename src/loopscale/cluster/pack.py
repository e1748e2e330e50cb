"""What is sent to a cluster: the code at its commit and the study's file, as one small archive.

Not the folder that the person is in: that holds data, virtual environments and what is half written. The archive of
the same commit and study is the same bytes, so that a cluster which has it already is sent nothing.
"""

import hashlib
import io
import json
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import loopscale
from loopscale.cluster.base import ClusterError
from loopscale.runner.machine.provenance import ORIGIN, PACKAGES, versions

LARGEST = 100 * 2**20
"""Bytes: Ray's job server takes no more (its documentation says 500 MiB; see engines, row 36)."""
EPOCH = (1980, 1, 1, 0, 0, 0)
"""Of every file: an archive must not depend on when it was made."""
SUFFIXES = (".py", ".typed", ".j2", ".js", ".LICENSE")


@dataclass(frozen=True)
class Package:
    """An archive that holds `loopscale/`, the study's file and where they come from; unpacked, it can be run."""

    content: bytes
    commit: str
    """Of the code; empty if it is in no repository."""
    unsent: tuple[str, ...]
    """Files of the code that were changed and not committed: the archive holds them as committed."""

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.content).hexdigest()[:16]

    def write(self, folder: Path) -> Path:
        """The archive as a file named by its content, in `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"loopscale-{self.digest}.zip"
        if not path.exists():
            part = path.with_suffix(".part")
            part.write_bytes(self.content)
            part.replace(path)
        return path


def pack(study: str, text: str) -> Package:
    """The package of a study, called `study` and with that text. Raises ClusterError if it is too large."""
    folder = Path(loopscale.__file__).parent
    commit = _git(folder, "rev-parse", "HEAD").strip() if _tracked(folder) else ""
    unsent = tuple(_changed(folder)) if commit else ()
    files = dict(_committed(folder) if commit else _installed(folder))
    origin = {"git_commit": commit, "git_changed": "no"} if commit else {}
    origin |= {f"submitted_with.{name}": version for name, version in versions(PACKAGES).items()}
    files |= {
        f"studies/{study}.yaml": text.encode(),
        ORIGIN: json.dumps(origin, indent=1, sort_keys=True).encode(),
    }
    content = _zip(files)
    if len(content) > LARGEST:
        raise ClusterError(
            f"the package of {study} has {len(content) / 2**20:.0f} MiB, and a cluster takes {LARGEST // 2**20}",
            "take large files out of the loopscale package's folder",
        )
    return Package(content, commit, unsent)


def _zip(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(files.items()):
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, content)
    return buffer.getvalue()


def _committed(folder: Path) -> Iterator[tuple[str, bytes]]:
    """The code as it is in the commit that is checked out."""
    done = subprocess.run(
        ["git", "-C", folder, "archive", "--format=tar", "HEAD", "."], capture_output=True, check=True
    )
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        for member in archive.getmembers():
            if member.isfile() and (content := archive.extractfile(member)):
                yield f"loopscale/{member.name.removeprefix('./')}", content.read()


def _installed(folder: Path) -> Iterator[tuple[str, bytes]]:
    """The code as it lies in an environment."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name.endswith(SUFFIXES):
            yield f"loopscale/{path.relative_to(folder).as_posix()}", path.read_bytes()


def _tracked(folder: Path) -> bool:
    return bool(_git(folder, "ls-files", "--", "__init__.py"))


def _changed(folder: Path) -> list[str]:
    lines = _git(folder, "status", "--porcelain", "--", ".").splitlines()
    return [line[3:] for line in lines]


def _git(folder: Path, *words: str) -> str:
    try:
        done = subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
