"""No password leaves through a tag, an export, a log, an error, a notice, a script or a report."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopscale.errors import QueryError, RunError, StorageError, StoreError, UsageError
from loopscale.redaction import password_of, redacted, redacted_command, without_password

SECRET = "tr0ub4dor&3"


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("postgresql://me:tr0ub4dor@db:5432/x", "postgresql://me@db:5432/x"),
        ("at postgresql+psycopg://me:a@b/c:d@db/x (refused)", "at postgresql+psycopg://me@db/x (refused)"),
        ("http://:geheim@host:5000", "http://@host:5000"),
        ("a://u:p@h1,b://u:q@h2", "a://u@h1,b://u@h2"),
        ("host=db password=tr0ub4dor user=me", "host=db password=*** user=me"),
        ("host=db password='two words' user=me", "host=db password=*** user=me"),
        (
            "postgresql://me@db/x?password=tr0ub4dor&sslmode=off",
            "postgresql://me@db/x?password=***&sslmode=off",
        ),
        ("AWS_SECRET_ACCESS_KEY=abc123 run", "AWS_SECRET_ACCESS_KEY=*** run"),
        ("--token abc123 --port 5000", "--token *** --port 5000"),
        ("Authorization: Bearer abcdef123456", "Authorization: Bearer ***"),
        ('{"password": "tr0ub4dor"}', '{"password": ***}'),
    ],
)
def test_every_kind_of_password_is_taken_out_of_a_text(text: str, safe: str):
    assert redacted(text) == safe


@pytest.mark.parametrize(
    "text",
    [
        "http://host:5000/pages/x@2",
        "s3://bucket/prefix?endpoint_override=host:9000",
        "postgresql://me@db/x",
        "git@github.com:a/b.git",
        "RAY_AUTH_MODE=token",
        "12 tokens of vocabulary 3: training.lr=0.1",
        "the token is wrong; set RAY_AUTH_TOKEN",
        "loopscale run quickstart --set training.steps=100",
        "a secret: 3 words",
        "abfss://container@account.dfs.core.windows.net/prefix",
    ],
)
def test_a_text_without_a_password_stays_as_it_is(text: str):
    assert redacted(text) == text


@given(password=st.text(st.characters(codec="ascii", exclude_categories=["C"]), min_size=6, max_size=30))
def test_an_address_loses_any_password(password: str):
    address = f"postgresql://me:{password}@db/x"
    if password[:5].rstrip("/?#").isdecimal() and "/" in password:
        return  # `host:5000/page@2` is an address without a password
    assert password_of(address) == password
    assert without_password(address) == "postgresql://me@db/x"
    assert redacted_command(["loopscale", "--store", address]) == "loopscale --store postgresql://me@db/x"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MLFLOW_TRACKING_PASSWORD", SECRET),
        ("PGPASSWORD", SECRET),
        ("RAY_AUTH_TOKEN", SECRET),
        ("LOOPSCALE_STORE", f"postgresql://me:{SECRET}@db/x"),
        ("MLFLOW_TRACKING_URI", "http://me:tr0ub4dor%263@db"),
    ],
)
def test_a_secret_of_the_environment_is_taken_out_wherever_it_stands(monkeypatch, name: str, value: str):
    monkeypatch.setenv(name, value)
    assert redacted(f"the server has refused [{SECRET}] twice") == "the server has refused [***] twice"


def test_a_secret_of_the_command_is_taken_out_wherever_it_stands(monkeypatch):
    monkeypatch.setattr("sys.argv", ["loopscale", "run", "--store", f"postgresql://me:{SECRET}@db/x"])
    assert redacted(f"wrong password {SECRET}.") == "wrong password ***."


@pytest.mark.parametrize("kind", [UsageError, RunError, QueryError, StorageError])
def test_no_error_holds_a_password(kind: type[Exception]):
    assert str(kind("postgresql://me:tr0ub4dor@db/x is away")) == "postgresql://me@db/x is away"
    assert str(StoreError("http://me:pw@host is away", "start it")) == "http://me@host is away; start it"
