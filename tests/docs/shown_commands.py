"""The commands and outputs that a page shows, to run them again and compare.

A page shows commands in blocks of the language `console`. A line `$ command` is a command, and the lines below it are
its output. In an output, `…` stands for any text within a line. A line with only `…` stands for any number of lines. A
block of YAML or Python with a title is a file that the following commands read. A comment `<!-- before: command -->` is
a command that readers do not see.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ANY = "…"


@dataclass(frozen=True)
class ShownFile:
    """A file that the page tells the reader to write."""

    path: str
    text: str


@dataclass(frozen=True)
class ShownCommand:
    """A command, and its output as the page prints it."""

    command: str
    output: tuple[str, ...]
    compared: bool = True
    """False for a command that readers do not see."""


_PARTS = re.compile(
    r'```(?:yaml|python) title="(?P<path>[^"]+)"\n(?P<file>.*?)```'
    r"|```console\n(?P<console>.*?)```"
    r"|<!-- before: (?P<before>.*?) -->",
    re.DOTALL,
)


def shown_parts(text: str) -> list[ShownFile | ShownCommand]:
    """The files and commands of a page, in their order."""
    parts: list[ShownFile | ShownCommand] = []
    for found in _PARTS.finditer(text):
        if found["path"]:
            parts.append(ShownFile(found["path"], found["file"]))
        elif found["before"]:
            parts.append(ShownCommand(found["before"], (), compared=False))
        else:
            for block in re.split(r"^\$ ", found["console"], flags=re.MULTILINE)[1:]:
                command, *output = block.rstrip("\n").split("\n")
                parts.append(ShownCommand(command, tuple(output)))
    return parts


def equal_output(shown: tuple[str, ...], real: list[str]) -> bool:
    """Whether the real lines are the shown lines, with `…` for any text. Spaces at the end of a line do not count."""
    if not shown:
        return not real
    if shown[0].strip() == ANY:
        return any(equal_output(shown[1:], real[start:]) for start in range(len(real) + 1))
    if not real:
        return False
    pattern = ".*".join(map(re.escape, shown[0].rstrip().split(ANY)))
    return bool(re.fullmatch(pattern, real[0].rstrip())) and equal_output(shown[1:], real[1:])


_TRAINED = re.compile(
    r"\d\.\d|\d(?:e-\d| %|%| s\b| h\b| min\b)|\b(?:holds?|level|undecided|not learnt|less|more than)\b"
)
"""Numbers and words that depend on the digits of a processor, or on the load of a machine."""


def dependent_lines(parts: Iterable[ShownFile | ShownCommand]) -> list[str]:
    """The shown lines of a page that another processor or a loaded machine may print in another way.

    `loopscale run` trains. The later commands on its study read trained numbers. No such output may show a number or a
    verdict. The output of a run begins and ends with any lines, because warnings come before and after the answer.
    """
    return list(_dependent_lines(parts))


def _dependent_lines(parts: Iterable[ShownFile | ShownCommand]) -> Iterator[str]:
    trained = set[str]()
    for part in parts:
        if not isinstance(part, ShownCommand):
            continue
        words = part.command.split()
        if words[:2] in (["loopscale", "run"], ["loopscale", "submit"]):
            trained.add(words[2])
        if words[:2] == ["loopscale", "run"] and part.output:
            yield from (
                f"$ {part.command}: {part.output[n]}" for n in (0, -1) if part.output[n].strip() != ANY
            )
        if trained and (trained & set(words) or words[:2] == ["loopscale", "query"]) and words[1] != "plan":
            yield from (
                f"$ {part.command}: {line}"
                for line in part.output
                if _TRAINED.search(line.replace("95 %", ""))
            )


def write_file(folder: Path, file: ShownFile) -> None:
    path = folder / file.path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(file.text, encoding="utf-8")
