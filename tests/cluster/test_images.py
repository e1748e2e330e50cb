"""The Dockerfiles: pinned versions, existing files, no root and no secret. The examples name images that one builds."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DOCKERFILES = [ROOT / "cluster/Dockerfile", ROOT / "cluster/tracking/Dockerfile"]
CONTEXTS = {"cluster": ROOT, "tracking": ROOT / "cluster/tracking"}
"""The build context of a Dockerfile, by the name of its folder."""
PUBLIC = ("https://download.pytorch.org/", "https://pypi.org/")
CONSTRAINTS = dict(
    line.strip().split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line
)


def instructions(path: Path) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile, each with its words on one line."""
    text = "\n".join(line for line in path.read_text().splitlines() if not line.lstrip().startswith("#"))
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in lines if line.strip()]


def stages(path: Path) -> list[list[tuple[str, str]]]:
    found: list[list[tuple[str, str]]] = []
    for word, rest in instructions(path):
        if word == "FROM":
            found.append([])
        if found:
            found[-1].append((word, rest))
    return found


def ids(path: Path) -> str:
    return path.parent.name


@pytest.mark.parametrize("path", DOCKERFILES, ids=ids)
def test_every_base_image_has_an_exact_version(path: Path):
    arguments = dict(rest.split("=", 1) for word, rest in instructions(path) if word == "ARG")
    for word, rest in instructions(path):
        if word == "FROM":
            image = re.sub(r"\$\{(\w+)\}", lambda name: arguments[name[1]], rest.split()[0])
            assert re.fullmatch(r"python:3\.11\.\d+-slim-bookworm", image)


@pytest.mark.parametrize("path", DOCKERFILES, ids=ids)
def test_the_last_user_is_a_number_that_is_not_root(path: Path):
    users = [rest for word, rest in stages(path)[-1] if word == "USER"]
    assert users == ["1000:1000"], "Kubernetes judges runAsNonRoot by the number"
    after = [word for word, _ in stages(path)[-1]]
    assert "RUN" not in after[after.index("USER") :]


@pytest.mark.parametrize("path", DOCKERFILES, ids=ids)
def test_every_copied_file_exists_in_the_build_context(path: Path):
    for word, rest in instructions(path):
        if word == "COPY" and not rest.startswith("--from"):
            *sources, _ = shlex.split(rest)
            for source in sources:
                assert (CONTEXTS[ids(path)] / source).exists(), source


@pytest.mark.parametrize("path", DOCKERFILES, ids=ids)
def test_an_image_holds_no_secret_and_names_only_public_hosts(path: Path):
    text = path.read_text()
    assert not re.search(r"(?i)(password|secret|token|access_key)\s*=", text)
    assert all(url.startswith(PUBLIC) for url in re.findall(r"https?://\S+", text))
    assert not re.search(r"\b(ADD|curl|sudo)\b|--trusted-host|chmod 777", text)


def test_the_image_of_trials_installs_the_locked_versions_only():
    runs = [rest for word, rest in instructions(DOCKERFILES[0]) if word == "RUN" and "pip install" in rest]
    for command in (part for run in runs for part in run.split("pip install")[1:]):
        assert command.startswith(" -c constraints.txt"), command
    assert {"torch", "ray", "mlflow", "boto3"} <= set(CONSTRAINTS)


def test_the_image_of_the_tracking_server_has_the_locked_versions():
    pinned = dict(re.findall(r"([a-z0-9]+)(?:\[[a-z]+\])?==([\d.]+)", DOCKERFILES[1].read_text()))
    assert pinned == {name: CONSTRAINTS[name] for name in ("mlflow", "psycopg", "boto3")}


def test_an_unknown_kind_of_torch_ends_the_build():
    text = DOCKERFILES[0].read_text()
    assert re.search(r"\*\) echo .*give cpu or cuda.* exit 1", text)


def test_the_build_context_holds_only_what_the_dockerfile_copies():
    ignored = (ROOT / "cluster/Dockerfile.dockerignore").read_text().splitlines()
    rules = [line for line in ignored if line and not line.startswith("#")]
    assert rules[0] == "*"
    copied = {
        source
        for word, rest in instructions(DOCKERFILES[0])
        if word == "COPY" and not rest.startswith("--from")
        for source in shlex.split(rest)[:-1]
    }
    assert {rule.removeprefix("!") for rule in rules if rule.startswith("!")} == copied


@pytest.mark.parametrize("name", ["kuberay", "aws", "gcp"])
def test_an_example_names_an_image_that_its_reader_builds(name: str):
    tree = yaml.safe_load((ROOT / "cluster" / f"{name}.yaml").read_text())
    image = tree.get("image") or tree["docker_image"]
    assert image == "registry.example.org/loopscale:0.2.0-cuda", "example.org belongs to nobody"
    assert f"docker build -f cluster/Dockerfile -t {image} --build-arg TORCH=cuda ." in (
        DOCKERFILES[0].read_text()
    )


def test_no_example_installs_a_package_by_a_name_that_nobody_has_published():
    for path in sorted((ROOT / "cluster").rglob("*")):
        if not path.is_file() or path.suffix not in (".yaml", ".md", ".sh", ""):
            continue
        for line in path.read_text().splitlines():
            assert not re.search(r"pip install.*\sloopscale(\s|==|$|')", line), f"{path}: {line}"
