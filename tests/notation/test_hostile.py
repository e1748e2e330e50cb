"""Malicious and generated study files are refused at once, in one line, and nothing in them runs."""

import gc
import os
import re
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from loopscale.notation.files import find_study
from loopscale.notation.mistakes import MOST_LINES, Mistakes
from loopscale.studies.spec import Study

GOOD = """\
question: Q
fixed:
  task: {kind: linear_regression, dim: 2, points: 4}
  model: {kind: looped, width: 8, heads: 1}
  training: {steps: 4, batch_size: 4, loops: 2, window: 1, eval_every: 2}
"""
LR = "nuisance: {training.lr: {real: [1.0e-3, 1.0]}}\n"
ESCAPE = "\\e[2J\\e]0;title\\a"


def listed(count: int) -> str:
    return "[" + ", ".join(map(str, range(1, count + 1))) + "]"


def refused(file: Path, overrides: dict[str, str] | None = None) -> str:
    """The text of the mistakes. Loading took little time and memory, and the text is safe for a terminal."""
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.thread_time()
    with pytest.raises(Mistakes) as caught:
        Study.load(file, overrides)
    took = time.thread_time() - start
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    text = str(caught.value)
    assert took < 1
    assert grown < 200 * 2**10
    assert all(line.isprintable() and len(line) < 1600 for line in text.split("\n"))
    assert text.count("\n") <= MOST_LINES
    return text


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    Study.load(written(GOOD, "warm.yaml"))
    gc.freeze()  # objects of other tests take a second to collect
    yield
    gc.unfreeze()


def written(text: str | bytes, name: str = "studies/bad.yaml") -> Path:
    file = Path(name)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return file


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n"
    for old, new in zip("abcdefghi", "bcdefghij", strict=True)
)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (GOOD + "source: !!python/object/apply:os.system ['touch MARK']\n", "tag !!python/object/apply"),
        (GOOD + "source: !!python/name:os.system\n", "the tag !!python/name:os.system is not allowed"),
        (GOOD + "source: !%1b%5b2J x\n", "the tag !.u001b.2J is not allowed"),
        (BOMB, "aliases unfold into too much"),
        ("question: &a [*a]\n", "aliases unfold into too much"),
        ("question: " + "[" * 100_000, "nested too deeply"),
        ("question: " + "{a: " * 5000 + "1" + "}" * 5000, "nested too deeply"),
        ("a:\n  " + "- " * 50_000 + "1", "nested too deeply"),
        (GOOD + "".join(f"k{n}: 1\n" for n in range(20_000)), "more than 5,000 values"),
        (GOOD + "".join(f"k{n}: 1\n" for n in range(1_001)), "1,003 values are written here"),
        (GOOD + "baselines: [" + "least_squares," * 1_001 + "]\n", "1,001 values are written here"),
        (GOOD.replace("dim: 2", "dim: 1e400"), "'1e400' cannot be read as a number"),
        (GOOD.replace("dim: 2", "dim: " + "9" * 5000), "cannot be read as a number"),
        (GOOD.replace("dim: 2", "dim: " + "9" * 30), "task.dim is 9{30}; write 16,384 or less"),
        (GOOD.replace("dim: 2", "dim: 2" + "_" * 100_000), "cannot be read as a number"),
        (GOOD.replace("dim: 2", "dim: 1e308"), "task.dim is 1e\\+308"),
        (GOOD + "replicates: 1000000000\n", "replicates is 1000000000; write 10000 or less"),
        (GOOD + LR + "search: {trials: 1000000000}\n", "search.trials is 1000000000; write 10000 or less"),
        (GOOD + "resources: {cpu: 1e300}\n", "resources.cpu is 1e\\+300"),
        (GOOD + "resources: {memory: 1e300}\n", "resources.memory is 1e\\+300"),
        (
            GOOD + "search: {kind: grid}\n" + LR.replace("}}", ", points: 9999999999}}"),
            "points is 9999999999",
        ),
        (
            GOOD.replace("steps: 4", "steps: 1000000000000")
            + LR
            + "scheduler: {kind: median, first_rung: 1}\n",
            "makes 1,000,000,000,000 comparisons of a trial; write 100000000 or more",
        ),
        (GOOD + "where: 9**9**9**9 > 1\n", "where may not hold"),
        (GOOD + "where: 1 << 99999999 > 1\n", "where may not hold"),
        (GOOD + "where: \"'a' * 999999999 == 'b'\"\n", "where cannot compute"),
        (GOOD + "where: \"'%999999999d' % 3 == 1\"\n", "where cannot compute"),
        (GOOD + "where: training.loops in [1] * 999999999\n", "where cannot compute"),
        (GOOD + "where: f'{1:>999999999}' == 'a'\n", "where may not hold"),
        (GOOD + "where: __import__('os').system('touch MARK') == 0\n", "where may not hold"),
        (GOOD + "where: " + "(" * 300 + "1" + ")" * 300 + "\n", "where is 601 characters|is not a condition"),
        (GOOD + "where: " + "9" * 39 + " / " + "9" * 400 + " > 1\n", "where"),
        (GOOD.replace("question: Q", f'question: "{ESCAPE}"'), "holds the character '.x1b'"),
        (GOOD.replace("linear_regression", f'"{ESCAPE}"'), "holds the character '.x1b'"),
        (GOOD + f'scientific: {{task.points: ["{ESCAPE}"]}}\n', "holds the character '.x1b'"),
        (GOOD + f'"{ESCAPE}": 1\n', "the key is '.x1b"),
        (GOOD + f'scientific: {{"training.{ESCAPE}": [1]}}\n', "the key is 'training..x1b"),
        (GOOD.replace("question: Q", 'question: "\\u202eevil"'), "holds the character '.u202e'"),
        (GOOD.replace("question: Q", 'question: "\\ud800"'), "holds the character '.ud800'"),
        (GOOD + '"\\ud800": 1\n', "the key is"),
        (GOOD + '"a\\0b": 1\n', "the key is 'a.x00b'"),
        (GOOD + "source: a\0b\n", "character 0 is not allowed in YAML"),
        (GOOD + "source: a\x1bb\n", "character 27 is not allowed in YAML"),
        (GOOD + "1: 2\n", "the key is '1'"),
        (GOOD + "~: 2\n", "the key is '~'"),
        (GOOD + "true: 2\n", "the key is 'true'"),
        (GOOD + "? [1, 2]\n: 2\n", "the key is a list or mapping"),
        (GOOD + "<<: {a: 1}\n", "the key is '<<'"),
        (GOOD + "x" * 5000 + ": 1\n", "not YAML|the key is"),
        (GOOD.replace("linear_regression", "l" * 200_000), "there is no task 'lll"),
        (GOOD.encode() + b"source: \xff\xfe\n", "byte 0xff is not UTF-8 text"),
        (GOOD.encode("utf-16"), "is not UTF-8 text"),
        (b"\x80\x04\x95c" + b"posix\nsystem\n", "is not UTF-8 text"),
    ],
)
def test_a_hostile_file_is_refused_at_once_in_one_line(text: str | bytes, what: str):
    message = refused(written(text))
    assert re.search(what, message), message
    assert "bad.yaml" in message
    assert not Path("MARK").exists()


def test_a_billion_cells_are_refused_by_number_and_never_made():
    axes = "".join(
        f"  {path}: {listed(400)}\n" for path in ("training.loops", "training.window", "task.points")
    )
    message = refused(written(GOOD + "scientific:\n" + axes))
    assert "the scientific values cross to 64,000,000 cells" in message
    many = "".join(f"  training.a{n}: {listed(400)}\n" for n in range(10))
    assert f"{400**10:,} cells" in refused(written(GOOD + "scientific:\n" + many))


def test_a_file_of_a_hundred_megabytes_is_not_read(tmp_path: Path):
    file = written(GOOD)
    os.truncate(file, 100 * 2**20)
    assert "larger than 256 KiB" in refused(file)


def test_pipes_and_devices_are_not_read():
    Path("studies").mkdir()
    os.mkfifo("studies/pipe.yaml")
    Path("studies/zero.yaml").symlink_to("/dev/zero")
    for name in ("pipe", "zero"):
        assert "this is a device or a pipe, not a file" in refused(Path(f"studies/{name}.yaml"))


@pytest.mark.parametrize(
    "name",
    [
        "../secret",
        "../../secret",
        "a/../../secret",
        "..",
        "/etc/passwd",
        "x\n",
        "a\0b",
        "\x1b[2J",
        "x" * 100_000,
        " ",
    ],
)
def test_no_name_leads_out_of_the_studies(name: str):
    written(GOOD, "studies/x.yaml")
    written(GOOD, "secret.txt")
    refused(name)  # pyright: ignore[reportArgumentType]


def test_no_name_follows_a_link_out_of_the_studies():
    written(GOOD, "elsewhere/secret.yaml")
    written(GOOD, "studies/real.yaml")
    Path("studies/leak.yaml").symlink_to(Path("elsewhere/secret.yaml").absolute())
    Path("studies/folder").symlink_to(Path("elsewhere").absolute())
    Path("studies/twin.yaml").symlink_to("real.yaml")
    for name in ("leak", "folder/secret"):
        with pytest.raises(
            Mistakes, match="this link leads out of studies/; name the file that the link points to"
        ):
            find_study(name)
    assert Study.load("twin").name == "real"


@pytest.mark.parametrize(
    ("path", "value", "what"),
    [
        ("a." * 50_000 + "b", "1", "names no setting"),
        ("training.\x1b[2J", "1", "names no setting"),
        ("training.steps", "9" * 5000, "cannot be read as a number"),
        ("training.steps", "1e400", "cannot be read as a number"),
        ("source", "!!python/object/apply:os.system ['touch MARK']", "the tag"),
        ("source", "[" * 10_000, "nested too deeply"),
        ("question", '"\\e[2J"', "holds the character"),
        ("replicates", "1000000000", "write 10000 or less"),
        ("scientific.training.loops", listed(1001), "1,001 values are written here"),
        ("where", "9**9**9 > 1", "where may not hold"),
        ("__class__.__init__", "1", "study has no setting"),
        ("fixed.task.kind", "../../x", "there is no task"),
        ("scientific.999999999999", "1", "scientific"),
        ("laws.999999", "{}", "laws"),
    ],
)
def test_an_override_is_checked_like_a_file(path: str, value: str, what: str):
    assert what in refused(written(GOOD), {path: value})
    assert not Path("MARK").exists()
