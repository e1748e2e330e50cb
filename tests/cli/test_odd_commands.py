"""Odd command lines: no traceback, no hang, one line, and the right exit code."""

import pytest

from loopscale.interface.queries import query

FAR = "290000-01-01"
MISTAKES = [
    ["query", f"SELECT DATE '{FAR}'"],
    ["query", f"SELECT TIMESTAMP '{FAR}' AS t", "--json"],
    ["query", "SELECT 'infinity'::DATE"],
    ["query", f"SELECT [DATE '{FAR}']"],
    ["query", "SELECT [1]", "--format", "csv"],
    ["query", ""],
    ["query", "   "],
    ["query", ";"],
    ["query", "--"],
    ["query", "SELECT 1; SELECT 2"],
    ["query", "DROP TABLE trials"],
    ["query", "COPY trials TO 'x.csv'"],
    ["query", "ATTACH 'x.db'"],
    ["query", "PRAGMA version"],
    ["query", "INSTALL httpfs"],
    ["query", "SELECT * FROM read_csv('/etc/passwd')"],
    ["query", "SELECT * FROM 'x.parquet'"],
    ["query", "SELECT getenv('HOME')"],
    ["query", "SELECT 1/"],
    ["query", "SELECT nothing FROM trials"],
    ["query", "SELECT '1'::INT + 'x'::INT"],
    ["query", "SELECT error('x')"],
    ["query", "SELECT ((((1)"],
    ["query", "\x00"],
    ["query", "SELECT '\udcff'"],
    ["query", "SELECT 1", "--tables"],
    ["query", "SELECT 1", "--format", "xml"],
    ["best", "tiny", "--where", "true) OR (true"],
    ["best", "tiny", "--where", "seed < 3) AND (true"],
    ["best", "tiny", "--where", "true) --"],
    ["best", "tiny", "--where", "true; SELECT 1"],
    ["best", "tiny", "--where", "("],
    ["best", "tiny", "--where", ")"],
    ["best", "tiny", "--where", "seed ="],
    ["best", "tiny", "--where", "'x'"],
    ["best", "tiny", "--where", "true GROUP BY trial"],
    ["best", "tiny", "--where", "true UNION SELECT trial FROM trials"],
    ["best", "tiny", "--where", "/*"],
    ["best", "tiny", "--where", "nothing = 1"],
    ["best", "tiny", "--where", "'\udcff' = 'x'"],
    ["best", "\udcff"],
    ["best", ""],
    ["best", "../tiny"],
    ["best", "/"],
    ["best", "x" * 5000],
    ["best"],
    ["best", "tiny", "tiny"],
    ["best", "-x"],
    ["list", "tiny"],
    ["report", ""],
    ["report", "tiny", "--out", ""],
    ["report", "tiny", "--out", "absent/page.html"],
    ["report", "tiny", "--out", "x" * 300],
    ["compare", "tiny"],
    ["compare", "tiny", "tiny"],
    ["compare", "tiny", "absent"],
    ["compare", "tiny", "\udcff"],
    ["export"],
    ["export", "tiny"],
    ["export", "tiny", "--all", "--to", "out"],
    ["export", "tiny", "--weights"],
    ["export", "--all", "--optuna", "x.db"],
    ["export", "tiny", "--optuna", ""],
    ["import", "absent"],
    ["import", "/dev/null"],
    ["import", ""],
    ["corpus"],
    ["corpus", "iwslt", "-o", "corpus"],
    ["corpus", "debian"],
    ["corpus", "debian", "-o", "absent/corpus"],
    ["corpus", "debian", "-o", ""],
    ["corpus", "debian", "po", "-o", "corpus"],
    ["corpus", "debian", "-o", "corpus", "--language", "de"],
    ["corpus", "debian", "-o", "corpus", "--packages", "absent"],
    ["corpus", "debian", "-o", "x" * 300, "--packages", "absent"],
    ["corpus", "gettext", "-o", "corpus"],
    ["corpus", "gettext", "absent", "-o", "corpus"],
    ["corpus", "gettext", "x" * 300, "-o", "corpus"],
    ["corpus", "gettext", ".", "-o", "corpus"],
    ["corpus", "gettext", ".", "-o", "corpus", "--packages", "."],
    ["plan", "absent"],
    ["plan", ""],
    ["plan", "tiny.yaml", "--set", "a"],
    ["plan", "tiny.yaml", "--set", "=1"],
    ["plan", "tiny.yaml", "--set", "training.steps="],
    ["plan", "tiny.yaml", "--set", "training.steps=[1"],
    ["plan", "tiny.yaml", "--set", "training.steps=0"],
    ["plan", "tiny.yaml", "--rate", "nan"],
    ["plan", "tiny.yaml", "--rate", "-1"],
    ["plan", "tiny.yaml", "--workers", "0"],
    ["run", "tiny.yaml", "--weight", "0"],
    ["run", "tiny.yaml", "--address", "127.0.0.1:1"],
    ["run", "tiny.yaml", "--address", ":6379"],
    ["run", "tiny.yaml", "--address", "127.0.0.1:99999"],
    ["run", "tiny.yaml", "--again", "absent"],
    ["predict", "absent"],
    ["predict", ""],
    ["show", "absent"],
    ["check", "absent.py"],
    ["check", ""],
    ["new", "task", "../x"],
    ["new", "thing", "x"],
    ["bound", "absent"],
    ["stop", "tiny", "--trial", "absent"],
    ["status", "absent"],
    ["logs", "absent"],
    ["submit", "absent"],
    ["submit", "tiny.yaml", "--cluster", "absent"],
    ["submit", "tiny.yaml", "--cluster", "../x"],
    ["ui", "--port", "0"],
    ["ui", "--host", "no.such.host.invalid"],
    ["nothing"],
    ["--nothing"],
    ["list", "--store", "ftp://x"],
    ["list", "--store", "http://"],
    ["list", "--store", "http://127.0.0.1:1"],
    ["list", "--store", "postgresql://"],
    ["list", "--store", "sqlite:///absent/x.db"],
    ["list", "--store", "~nobodyatall/x"],
    ["list", "--store", "x" * 5000],
    ["list", "--store", "/proc/self/mem"],
]


@pytest.mark.quick_cases(12)
@pytest.mark.parametrize("words", MISTAKES, ids=lambda words: " ".join(words)[:60])
def test_an_odd_command_is_one_line_and_exit_code_2(loopscale, records, study_file, elsewhere, words):
    (elsewhere / "tiny.yaml").write_text(study_file.read_text())
    place = [] if "--store" in words else ["--store", "records"]
    answer = loopscale(*([*place, *words] if words[0] not in ("nothing", "--nothing") else words))
    assert (answer.code, answer.err.count("\n")) == (2, 1), answer
    assert "; " in answer.err


def test_a_date_beyond_the_range_of_python_is_a_mistake_from_python_too(records):
    from loopscale.errors import QueryError

    with pytest.raises(QueryError, match="cast"):
        query(f"SELECT DATE '{FAR}'", records)


def test_a_condition_may_hold_brackets_and_a_comment(loopscale, records):
    for where in (
        "(seed < 3) OR (seed > 1)",
        "(((true)))",
        "seed < 3 -- a comment",
        "label LIKE '%)%' OR true",
    ):
        assert loopscale("--store", records, "best", "tiny", "--where", where).code == 0
