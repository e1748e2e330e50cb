"""`loopscale corpus`: pairs of sentences in two languages, for the task of translation."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from loopscale.cli.errors import UsageError
from loopscale.cli.options import JsonOption
from loopscale.cli.output import plural, say, say_folded, show_json, tell


def command(
    texts: Annotated[Literal["debian", "gettext"], typer.Argument(metavar="debian|gettext")],
    places: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[DIR]...", help="Of gettext: catalogues, or folders of *.po and *.mo."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="DIR", help="A new folder for the corpus.")
    ] = None,
    packages: Annotated[
        Path | None,
        typer.Option("--packages", metavar="DIR", help="Of debian: the files *.deb, without a network."),
    ] = None,
    language: Annotated[
        str | None,
        typer.Option(
            "--language",
            metavar="NAME",
            help="Of gettext: the language of the translations.",
            show_default="de",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Build a corpus of sentence pairs, German to English: train, validation and test, with a datasheet.

    [bold]debian[/bold] fetches the help of LibreOffice and the Ding dictionary with apt, and installs nothing.
    [bold]gettext[/bold] reads the catalogues of programs. No pair of validation or test is nearly the same as a pair
    before.

    [bold]Example[/bold]  loopscale corpus debian -o german-english

    loopscale corpus gettext po -o messages
    """
    if out is None:
        raise UsageError("the folder of the corpus is missing; give -o DIR")
    if texts == "debian":
        from loopscale.corpora.building import check_new_folder
        from loopscale.corpora.debian import build_debian_corpus

        if places or language:
            raise UsageError("debian takes no folders of catalogues and no language; leave them out")
        check_new_folder(out)
        if packages is None:
            tell("fetching three packages with apt, and reading their texts: about a minute")
        datasheet = build_debian_corpus(out, packages)
    else:
        from loopscale.corpora.catalogues import build_gettext_corpus

        if not places or packages:
            raise UsageError(
                "gettext reads catalogues and no packages; give files or folders, without --packages"
            )
        datasheet = build_gettext_corpus(out, places, language or "de")
    if as_json:
        show_json(datasheet)
        return
    for name, count in datasheet["read"].items():
        say(f"{name}: {plural(count, 'pair')} of sentences")
    left = ", ".join(f"{count:,} {reason}" for reason, count in datasheet["left_out"].items() if count)
    say_folded(f"left out: {left or 'none'}")
    kept = ", ".join(f"{count:,} {part}" for part, count in datasheet["pairs"].items())
    say(f"kept: {kept}")
    say(f"wrote {out}; datasheet.yaml names versions, licences and hashes")
