"""The package for a cluster: the code at its commit and the study's file, in one small archive.

The archive does not hold the working directory, with its data, virtual environments and unfinished files. The same
commit and study give the same bytes, so a cluster receives equal packages once.
"""

import hashlib
import io
import json
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import loopscale
from loopscale.cluster.base import ClusterError, Request
from loopscale.runner.machine import ORIGIN, PACKAGES, git, versions

PACKAGE_BYTES = 100 * 2**20
"""The limit of Ray's job server. (Its documentation says 500 MiB.)"""
EPOCH = (1980, 1, 1, 0, 0, 0)
"""The date of every file in the archive, so that the bytes do not depend on the time."""


@dataclass(frozen=True)
class Package:
    """An archive of `loopscale/`, the study's file and their origin. The unpacked archive can run the study."""

    content: bytes
    commit: str
    """The commit of the code; empty outside a repository."""
    unsent: tuple[str, ...]
    """Files of the code with uncommitted changes. The archive holds the committed version."""

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.content).hexdigest()[:16]

    def write(self, folder: Path) -> Path:
        """Write the archive to a file in `folder`, named by its digest."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"loopscale-{self.digest}.zip"
        if not path.exists():
            part = path.with_suffix(".part")
            part.write_bytes(self.content)
            part.replace(path)
        return path


def build_package(study: str, text: str, plugins: Mapping[str, bytes] = {}) -> Package:
    """The package of a study, given its name, the text of its file, and the files of its plugins.

    Raises ClusterError if the package is too large.
    """
    folder = Path(loopscale.__file__).parent
    commit = git(folder, "rev-parse", "HEAD").strip() if git(folder, "ls-files", "--", "__init__.py") else ""
    unsent = tuple(line[3:] for line in git(folder, "status", "--porcelain", "--", ".").splitlines())
    files = dict(_committed(folder) if commit else _installed(folder))
    origin = {"git_commit": commit, "git_changed": "no"} if commit else {}
    origin |= {f"submitted_with.{name}": version for name, version in versions(PACKAGES).items()}
    files |= {
        f"studies/{study}.yaml": text.encode(),
        ORIGIN: json.dumps(origin, indent=1, sort_keys=True).encode(),
    }
    content = _zip(files | dict(plugins))
    if len(content) > PACKAGE_BYTES:
        raise ClusterError(
            f"the package of {study} has {len(content) / 2**20:.0f} MiB, and a cluster takes {PACKAGE_BYTES // 2**20}",
            "take large files out of the loopscale package's folder",
        )
    return Package(content, commit, unsent if commit else ())


def unpack(request: Request, folder: Path) -> None:
    """Unpack the package (or write the study's file) into a new folder, which appears complete or not at all."""
    if folder.exists():
        return
    part = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".part-"))
    part.chmod(0o755)
    if request.package:
        with zipfile.ZipFile(request.package) as archive:
            archive.extractall(part)
    else:
        for path, content in {request.file: request.text.encode(), **request.plugins}.items():
            (part / path).parent.mkdir(parents=True, exist_ok=True)
            (part / path).write_bytes(content)
    try:
        part.rename(folder)
    except OSError:  # another submission was faster
        shutil.rmtree(part)


def _zip(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(files.items()):
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, content)
    return buffer.getvalue()


def _committed(folder: Path) -> Iterator[tuple[str, bytes]]:
    """The files of the code in the current commit."""
    command = ["git", "-C", folder, "archive", "--format=tar", "HEAD", "."]
    done = subprocess.run(command, capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        for member in archive.getmembers():
            if member.isfile() and (content := archive.extractfile(member)):
                yield f"loopscale/{member.name.removeprefix('./')}", content.read()


def _installed(folder: Path) -> Iterator[tuple[str, bytes]]:
    """The files of the code in an environment without a repository."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield f"loopscale/{path.relative_to(folder).as_posix()}", path.read_bytes()
