"""Names of studies of any length: the files that are named by a study fit into file systems, and hide no study."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from loopscale.cli.main import main
from loopscale.core.files import LONGEST_FILE_NAME, bounded_name
from loopscale.runner.lease import drivers, lease, lock_holder, lock_path
from loopscale.studies.spec import Study
from tests.cli.conftest import TINY, record

DOTS = "a" + ".a" * 79
"""A name that grows beyond 255 bytes where dots are escaped."""
LONGER = "b" * 450
"""A name within MLflow's limit for experiments."""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a study of a usual name, and studies of long names."""
    root = tmp_path_factory.mktemp("long") / "store"
    for name in ("tiny", DOTS, LONGER, f"{LONGER}c"):
        with record(root, Study.parse(TINY, name)) as recording:
            recording.whole()
    return root


@pytest.fixture
def store(recorded: Path, tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(recorded, tmp_path / "store"))


def test_a_name_that_fits_stays_and_longer_names_stay_different():
    assert bounded_name("a" * 250, ".lock") == "a" * 250 + ".lock"
    long = [bounded_name("ü" * 200 + end, ".lock") for end in ("", "a", "b")]
    assert len(set(long)) == 3
    assert all(len(name.encode()) <= LONGEST_FILE_NAME and name.endswith(".lock") for name in long)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tiny", DOTS, LONGER])
def test_a_study_of_any_name_is_read_beside_the_others(store: Path, capfd, name):
    assert main(["list", "--store", "store"]) == 0
    listed = capfd.readouterr().out
    assert all(line in "".join(listed.split()) for line in ("tiny", DOTS))
    for words in (["best", name], ["report", name], ["export", name, "--to", "exported"]):
        assert main([*words, "--store", "store"]) == 0, words
    capfd.readouterr()
    assert main(["query", "SELECT DISTINCT study FROM trials", "--store", "store", "--json"]) == 0
    out = capfd.readouterr().out
    assert all(study in out for study in ("tiny", DOTS, f"{LONGER}c"))


def test_a_driver_of_a_study_with_a_long_name_is_found(tmp_path: Path):
    with lease(tmp_path, LONGER), lease(tmp_path, f"{LONGER}c"):
        assert {driver.study for driver in drivers(tmp_path)} == {LONGER, f"{LONGER}c"}
        assert lock_holder(tmp_path, LONGER)
    assert lock_path(tmp_path, "a/b").name == "a__b.lock"


@pytest.mark.slow
def test_an_unreadable_experiment_hides_no_other(store: Path, capfd):
    with closing(sqlite3.connect("store/mlflow.db")) as database, database:
        database.execute(
            "UPDATE experiment_tags SET value = '999' WHERE key = 'loopscale.format' AND experiment_id ="
            " (SELECT experiment_id FROM experiments WHERE name = 'tiny')"
        )
    assert main(["query", "SELECT DISTINCT study FROM trials", "--store", "store", "--json"]) == 0
    out, err = capfd.readouterr()
    assert DOTS in out
    assert "tiny is left out: the records of tiny have format 999" in err
    assert main(["best", "tiny", "--store", "store"]) == 2
