"""The output of `best`, `query`, `list`, `report`, `compare`, `plan` and `show`, for people and for programs."""

import csv
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from loopscale.analysis.answers.best_cells import Best
from loopscale.analysis.recorded.results import Results
from loopscale.cli.best import show_best
from loopscale.cli.components import FAMILIES
from loopscale.models.base import Model
from loopscale.records.model import RUN_NOTE, STUDY, Note
from loopscale.records.stores.opening import open_store
from loopscale.runner.lease import lease
from loopscale.solvers.base import Solver
from loopscale.studies.spec import Study
from loopscale.tasks.base import Task
from loopscale.theory.bounds.base import Bound
from loopscale.theory.constructions.base import Construction
from loopscale.theory.statement import SYSTEMS


def test_best_prints_an_object_per_cell_for_programs(loopscale, store):
    one, two = loopscale("best", "tiny", "--store", store, "--json").json["cells"]
    assert (one["label"], one["replicates"], one["training.loops"]) == ("loops=1", 3, 1)
    assert one["training.lr"] == one["settings"]["training.lr"] == 5e-3
    assert one["model.kind"] == "looped"
    assert one["error"] == pytest.approx(0.42)
    assert one["error_low"] < 0.42 < one["error_high"]
    assert two["error"] == pytest.approx(0.32)
    assert {"cell", "label", "error", "error_low", "error_high", "error_last", "replicates", "trial"} <= set(
        two
    )


def test_best_prints_a_row_per_cell_for_people(loopscale, store, study_file):
    answer = loopscale("--store", store, "best", study_file)
    assert answer.code == 0
    rows = [line.split() for line in answer.out.splitlines() if "loops=" in line]
    assert [row[:3] for row in rows] == [["loops=1", "0.005", "0.42"], ["loops=2", "0.005", "0.32"]]


def test_best_names_a_range_whose_end_was_best(capsys):
    study = {"nuisance": {"training.lr": {"real": [1e-4, 1e-2], "scale": "log"}}}
    rows = [
        Best("a", "looped", {"training.lr": 9.7e-3}, 0.4, 0.3, 0.5, 0.4, 3, "trial", "3 of 3 replicated"),
        Best("b", "gpt2", {"training.lr": 3e-3}, 0.3, 0.2, 0.4, 0.3, 3, "trial", "3 of 3 replicated"),
    ]
    study |= {"name": "narrow", "cells": []}
    show_best(Results(study, *(pd.DataFrame() for _ in range(3))), rows)
    said = " ".join(capsys.readouterr().out.split())
    assert "the best training.lr of looped is at the highest end of its range, 0.01: a wider range" in said
    assert "gpt2 is at" not in said


def test_best_with_a_condition_leaves_out_other_cells(loopscale, store):
    found = loopscale("best", "tiny", "--store", store, "--json", "--where", '"training.loops" > 1').json[
        "cells"
    ]
    assert [cell["label"] for cell in found] == ["loops=2"]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("where", ["seed = 1", "error > 0.4", '"training.loops" = 2', "role = 'replicate'"])
def test_a_condition_of_best_changes_no_row(loopscale, store, where):
    whole = loopscale("best", "tiny", "--store", store, "--json").json["cells"]
    found = loopscale("best", "tiny", "--store", store, "--json", "--where", where).json["cells"]
    assert found
    assert all(cell in whole for cell in found)
    none = loopscale("best", "tiny", "--store", store, "--where", "seed = 2")
    assert none.out == "no cell of tiny has an answer whose trial meets seed = 2\n"


def test_an_interval_uses_the_noise_of_all_cells_also_hidden_ones(
    loopscale, elsewhere, recording, study_file
):
    study = Study.load(study_file)
    with recording(Path("records"), study) as made:
        made.parent()
        for cell, spread in zip(study.cells(), (0.001, 0.1), strict=True):
            for seed in (1, 2, 3):
                made.trial(cell, "replicate", seed, seed, {"training.lr": 5e-3}, 0.4 + spread * seed)
    ask = ("best", "tiny", "--store", "records", "--json")
    first = loopscale(*ask, "--where", '"training.loops" = 1').json["cells"]
    assert first == loopscale(*ask).json["cells"][:1]


def test_a_query_answers_as_table_csv_and_json(loopscale, store):
    sql = """SELECT "training.loops" AS t, min(error) AS least FROM trials WHERE role = 'replicate' GROUP BY t
    ORDER BY t"""
    table = loopscale("query", sql, "--store", store)
    assert [line.split() for line in table.out.splitlines() if "0." in line] == [["1", "0.41"], ["2", "0.31"]]
    comma = loopscale("query", sql, "--store", store, "--format", "csv")
    assert next(csv.reader(io.StringIO(comma.out))) == ["t", "least"]
    assert loopscale("query", sql, "--store", store, "--json").json == [
        {"t": 1, "least": 0.41000000000000003},
        {"t": 2, "least": 0.31},
    ]


def test_json_has_null_for_numbers_that_are_not_finite(loopscale, store):
    answer = loopscale(
        "query",
        "SELECT 'nan'::DOUBLE AS a, 'inf'::DOUBLE AS b, DATE '2024-01-02' AS c",
        "--store",
        store,
        "--json",
    )
    assert answer.json == [{"a": None, "b": None, "c": "2024-01-02"}]


def test_a_table_in_a_pipe_is_neither_cut_nor_coloured(loopscale, store):
    answer = loopscale("query", f"SELECT '{'x' * 300}' AS long, '[bold]' AS mark", "--store", store)
    assert "x" * 300 in answer.out
    assert "[bold]" in answer.out
    assert "\x1b" not in answer.out


def test_json_refuses_two_columns_of_one_name_and_the_other_forms_show_both(loopscale, store):
    words = ("query", "SELECT 0.1 AS error, 0.2 AS error", "--store", store)
    refused = loopscale(*words, "--json")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err == "two columns are named error; write AS to name one of them\n"
    assert loopscale(*words, "--format", "csv").out == '"error","error"\n0.1,0.2\n'
    assert loopscale(*words).out.split()[:2] == ["error", "error"]


@pytest.mark.slow
def test_a_table_of_many_rows_ends_with_the_number_of_the_others(loopscale, store):
    rows = loopscale("query", "SELECT range AS n FROM range(300000)", "--store", store).out.split("\n")
    assert sum(row.strip().isdigit() for row in rows) == 10_000
    assert rows[-2] == "290,000 more rows; add LIMIT, or write --format csv"
    wide = loopscale("query", "SELECT range AS n, n + 1, n + 2 FROM range(3334)", "--store", store).out
    assert wide.endswith("1 more row; add LIMIT, or write --format csv\n")
    assert "more row" not in loopscale("query", "SELECT * FROM range(10000)", "--store", store).out


@pytest.mark.slow
def test_a_long_cell_of_a_table_is_cut_and_csv_and_json_have_the_whole(loopscale, store):
    words = ("query", "SELECT repeat('x', 100000000) AS long", "--store", store)
    table = loopscale(*words).out
    assert "x" * 500 + "... (100,000,000 characters)" in table
    assert table.count("x") == 500
    assert len(loopscale(*words, "--json").json[0]["long"]) == 100_000_000
    assert len(loopscale(*words, "--format", "csv").out) == len('"long"\n""\n') + 100_000_000


def test_bytes_are_hexadecimal_digits_in_every_form(loopscale, store):
    words = ("query", r"SELECT '\xFFa'::BLOB AS a, NULL::BLOB AS b, ['x'::BLOB] AS c", "--store", store)
    assert loopscale(*words, "--json").json == [{"a": "ff61", "b": None, "c": ["78"]}]
    words = ("query", r"SELECT '\xFFa'::BLOB AS a, NULL::BLOB AS b", "--store", store)
    assert loopscale(*words, "--format", "csv").out == '"a","b"\n"ff61",\n'
    assert loopscale(*words).out.split()[-2:] == ["ff61", "–"]


@pytest.mark.parametrize(
    ("value", "kind"),
    [("INTERVAL '3 days'", "month_day_nano_interval"), ("[1]", "list<"), ("9::BIGNUM", "bignum")],
)
def test_csv_names_the_column_that_it_cannot_write_before_any_output(loopscale, store, value, kind):
    answer = loopscale("query", f"SELECT 1 AS n, {value} AS odd", "--store", store, "--format", "csv")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("CSV has no form for column odd of type ")
    assert kind in answer.err
    assert answer.err.endswith("; cast the column to text, or use --json\n")


@pytest.mark.parametrize("form", ["csv", "table"])
def test_json_and_a_format_exclude_each_other(loopscale, store, form):
    for words in (["SELECT 1", "--json"], ["--tables"]):
        answer = loopscale("query", *words, "--format", form, "--store", store)
        assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
        assert "--format" in answer.err


def test_list_shows_every_study_and_its_driver(loopscale, store):
    assert loopscale("list", "--store", store, "--json").json[0]["state"] == "finished"
    with lease(open_store(store).storage, "tiny"):
        (found,) = loopscale("list", "--store", store, "--json").json
        assert "running, by process" in loopscale("list", "--store", store).out
    assert found["state"] == "running"
    assert found["running_by"].startswith("process ")
    assert found["outcomes"] == {"finished": 10}
    assert (found["planned"], found["cells"], found["error"]) == (10, 2, 0.31)
    assert found["question"] == "Does the error fall with the loops?"


def test_list_counts_outcomes_and_marks_a_study_that_was_cut_short(
    loopscale, elsewhere, recording, study_file
):
    study = Study.load(study_file)
    with recording(Path("records"), study) as made:
        made.parent("RUNNING")
        cell = study.cells()[0]
        made.trial(cell, "tuning", 0, 0, {"training.lr": 2e-3}, 0.5)
        made.trial(cell, "tuning", 1, 0, {"training.lr": 5e-3}, 0.4, "diverged", "loss is nan at step 3")
    (found,) = loopscale("list", "--store", "records", "--json").json
    assert found["outcomes"] == {"finished": 1, "diverged": 1}
    assert (found["state"], found["error"]) == ("cut short", 0.5)


def test_list_says_if_earlier_forms_of_a_study_had_more_trials(loopscale, elsewhere, recording, study_file):
    study = Study.load(study_file, {"replicates": "1", "search.trials": "1"})
    assert study.planned == 4
    with recording(Path("records"), study) as made:
        made.parent("FINISHED")
        for number in range(5):
            made.trial(study.cells()[0], "tuning", number, 0, {"training.lr": 1e-3 * (number + 1)}, 0.5)
    assert "5 (the study now plans 4): 5 finished" in " ".join(
        loopscale("list", "--store", "records").out.split()
    )


def test_the_report_is_a_page_and_an_artifact_of_the_study(loopscale, elsewhere, records):
    found = loopscale("report", "tiny", "--store", "records", "--json").json
    page = Path(found["file"])
    assert page == elsewhere / "records/reports/tiny.html"
    assert found["attached"] is True
    assert "Does the error fall with the loops?" in page.read_text()
    (attached,) = Path("records/artifacts").rglob("report.html")
    assert attached.read_bytes() == page.read_bytes()


@pytest.mark.slow
def test_the_description_of_the_parent_run_holds_the_answer_and_keeps_a_note(loopscale, records):
    """A resumed run writes the report again, so the answer must not stand twice."""
    assert loopscale("report", "tiny", "--store", "records").code == 0
    place = open_store("records")
    parent = place.parent_run("tiny")
    assert parent
    first = parent.tags[RUN_NOTE]
    assert first.startswith("**Answer**\n\nBest is ")
    assert "the artifact `report.html` of this run" in first
    place.client.set_tag(parent.id, RUN_NOTE, f"A note of the lab.\n\n{first}")
    assert loopscale("report", "tiny", "--store", "records").code == 0
    parent = open_store("records").parent_run("tiny")
    assert parent
    assert parent.tags[RUN_NOTE] == f"A note of the lab.\n\n{first}"
    assert loopscale("report", "tiny", "--store", "records", "--out", "page.html").code == 0
    assert "least squares" in Path("page.html").read_text()


def test_the_report_has_the_origin_of_the_results(loopscale, records, recording, study_file):
    study = Study.load(study_file)
    with recording(records, study) as made:
        tags = {
            "git_commit": "c0ffee",
            "git_changed": "no",
            "version.torch": "2.13.0",
            "hardware": "an abacus",
        }
        made.writer.write(Note(STUDY, tags=tags))
    assert loopscale("report", "tiny", "--store", "records", "--out", "page.html").code == 0
    page = Path("page.html").read_text()
    for part in ("c0ffee", "2.13.0", "an abacus", "not recorded (10 trials)", "0 (4 trials), 1 (2 trials)"):
        assert part in page, part
    assert "scientific:\n  training.loops: [1, 2]" in page


@pytest.mark.slow
def test_compare_matches_cells_and_laws_of_two_studies(loopscale, elsewhere, records, recording, study_file):
    longer = elsewhere / "studies" / "longer.yaml"
    longer.parent.mkdir()
    longer.write_text(study_file.read_text().replace("training.loops: [1, 2]", "training.loops: [2, 3]"))
    with recording(records, Study.load(longer)) as made:
        made.whole()
    found = loopscale("compare", "tiny", "longer", "--store", "records", "--out", "page.html", "--json").json
    (pair,) = found["pairs"]
    assert found["matched"] == ["training.loops"]
    assert pair["ratio"] == pytest.approx(1.0)
    assert pair["low"] < 1 < pair["high"]
    assert found["alone"] == [["loops=1"], ["loops=3"]]
    assert [law["along"] for law in found["laws"]] == ["loop"] * len(found["laws"])
    assert "longer against tiny" in Path("page.html").read_text()
    told = loopscale("compare", "tiny", "longer", "--store", "records").out
    assert "Cells are matched by training.loops." in told
    assert "undecided" in told


def test_compare_takes_one_study_from_two_stores(loopscale, elsewhere, store, records):
    words = ["compare", "tiny", "tiny", "--store", store]
    assert "or --second-store" in loopscale(*words).err
    answer = loopscale(*words, "--second-store", "records")
    assert answer.code == 0
    assert f"tiny in {Path('records').absolute()}" in answer.out
    found = loopscale(*words, "--second-store", "records", "--json").json
    assert [pair["ratio"] for pair in found["pairs"]] == pytest.approx([1.0, 1.0])


def test_plan_says_what_earlier_runs_have_left(loopscale, store, study_file):
    words = ["plan", study_file, "--rate", "1e9", "--store", store]
    assert "recorded: 10 of 10 trials; left to train: 0\n" in loopscale(*words).out
    more = loopscale(*words, "--set", "replicates=5")
    assert "recorded: 10 of 14 trials; left to train: 4, " in more.out
    assert loopscale(*words, "--set", "replicates=5", "--json").json["left"]["trials"] == 4
    assert "left to train" not in loopscale("plan", study_file, "--rate", "1e9").out


@pytest.mark.slow
def test_compare_warns_first_of_different_prompts_and_keeps_lines_short(
    loopscale, elsewhere, records, recording, study_file, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "100")
    other = elsewhere / "studies" / "other.yaml"
    other.parent.mkdir()
    text = study_file.read_text().replace("points: 4", "points: 5")
    named = ", ".join(f"{{kind: {kind}}}" for kind in ("newton", "ridge", "averaging", "conjugate_gradient"))
    other.write_text(re.sub(r"baselines: .*", f"baselines: [{named}]", text))
    with recording(records, Study.load(other)) as made:
        made.whole()
    lines = loopscale("compare", "tiny", "other", "--store", "records").out.splitlines()
    assert lines[0].startswith("The studies differ in task or evaluation (task.points")
    assert max(map(len, lines)) <= 160
    table = lines[lines.index("What differs in the studies:") + 1 :]
    assert max(map(len, table)) <= 100
    assert any("conjugate_gradient (features inputs)" in line for line in table)


@pytest.mark.slow
def test_records_travel_between_stores(loopscale, store):
    assert loopscale("export", "tiny", "--store", store, "--to", "carried", "--json").json["trials"] == 12
    taken = loopscale("import", "carried", "--store", "other", "--json").json
    assert taken == {"new": 12, "present": 0, "mended": 0}
    here, there = (
        loopscale("best", "tiny", "--store", place, "--json").json["cells"] for place in (store, "other")
    )
    assert here == there


def test_plan_is_one_object_and_writes_nothing(loopscale, study_file, elsewhere):
    found = loopscale("plan", study_file, "--rate", "1e9", "--workers", "3", "--json").json
    assert (found["study"], found["trials"], found["baselines"], found["workers"]) == ("tiny", 10, 2, 3)
    assert (
        loopscale("plan", study_file, "--rate", "1e9", "--set", "replicates=1", "--json").json["trials"] == 6
    )
    given = loopscale("plan", study_file, "--rate", "1e9", "--full").out
    assert "10 trials in 2 cells" in given
    assert "the hours include start-up, validation and evaluation; they do not include baselines" in given
    assert list(elsewhere.iterdir()) == []


def test_plan_prints_trials_hours_and_the_first_notes_and_says_how_to_see_the_rest(loopscale, study_file):
    short, full = (loopscale("plan", study_file, "--rate", "1e9", *more).out for more in ([], ["--full"]))
    lines = short.splitlines()
    assert lines[1].startswith("10 trials in 2 cells")
    assert "at a time" in lines[2]
    notes = [text.count("note: ") for text in (short, full)]
    assert notes[0] == min(5, notes[1])
    assert "reducible error:" not in short
    left = f"{notes[1] - notes[0]} more note" if notes[1] > notes[0] else "memory"
    assert f"--full adds {left}" in lines[-1]
    assert "--full adds" not in full


def test_plan_prints_room_power_and_noise_in_a_hundred_columns(loopscale, study_file):
    given = loopscale("plan", study_file, "--rate", "1e9", "--full").out
    assert "reducible error: errors over the variance of the target, on 512 prompts" in given
    assert "1 law gets no verdict, because there is no theory to judge by (error along loop)" in given
    assert "rate along loop of looped on linear_regression" in given
    after = given[given.index("reducible error:") :].splitlines()
    assert max(map(len, after)) <= 100, max(after, key=len)


def test_plan_as_json_has_all_numbers_of_room_and_power(loopscale, study_file):
    found = loopscale("plan", study_file, "--rate", "1e9", "--json").json
    (task,), (axis,) = found["room"]["tasks"], found["room"]["axes"]
    assert axis["axis"] == "training.loops"
    assert 0.1 < axis["effect"] < 1
    assert (
        task["room"]["after"]["1"]["mean"]
        > task["room"]["after"]["2"]["mean"]
        > task["room"]["floor"]["last"]
    )
    (first, *_) = found["power"]
    assert (first["question"], first["outlook"], first["chance_exact"]) == (
        "error along loop",
        "no verdict",
        0.0,
    )
    assert first["noise"]["noise"]["sd"] > 0


def test_plan_warns_of_small_effects_at_the_given_least_effect(loopscale, study_file):
    def notes(*options: str) -> str:
        return " ".join(loopscale("plan", study_file, "--rate", "1e9", "--full", *options).out.split())

    assert "moves only nets that fall short of the best known algorithm" not in notes()
    assert "training.loops (1 .. 2) moves only nets that fall short of the best known algorithm" in notes(
        "--least-effect", "0.9"
    )


def test_plan_takes_the_noise_from_earlier_records_of_the_study(loopscale, study_file, store):
    planned = [
        "plan",
        study_file,
        "--rate",
        "1e9",
        "--set",
        "laws=[{of: error, along: training.loops}]",
        "--json",
    ]
    (table,), (own,) = (loopscale(*planned, *more).json["power"] for more in ([], ["--store", store]))
    assert table["noise"]["source"] == "looped on linear_regression"
    assert (own["noise"]["source"], own["noise"]["runs"]) == ("looped in this study", 6)
    assert own["learning"][0]["own"] == 6


@pytest.mark.parametrize(
    ("what", "family"),
    [
        ("tasks", Task),
        ("models", Model),
        ("solvers", Solver),
        ("bounds", Bound),
        ("constructions", Construction),
    ],
)
def test_show_knows_every_member_and_setting_of_a_family(loopscale, what, family):
    found = {member["kind"]: member for member in loopscale("show", what, "--json").json}
    assert list(found) == list(family.choices())
    for kind, member in family.choices().items():
        settings = {setting["name"]: setting for setting in found[kind]["settings"]}
        assert list(settings) == list(member.model_fields)
        assert found[kind]["summary"]
        assert all(setting["about"] for setting in settings.values())
        required = {name for name, field in member.model_fields.items() if field.is_required()}
        assert {name for name, setting in settings.items() if setting["default"] == "required"} == required


def test_show_names_the_studies_of_a_bound_or_the_reason_why_there_is_none(loopscale):
    facts = {each["kind"]: each["facts"] for each in loopscale("show", "bounds", "--json").json}
    assert facts["he_gmm"]["studies"].startswith("clustering/")
    assert facts["fu_newton"]["studies"] is None
    assert facts["fu_newton"]["without study"] == "a reference for matched steps, which are no law"
    assert facts["lsa_matrix"]["without study"] == "no trial measures coefficients"
    table = loopscale("show", "bounds").out
    assert "studies" in table
    assert re.search(r"he_gmm .*clustering/", table)
    assert "studies" not in loopscale("show", "constructions").out.splitlines()[1]


def test_show_tells_the_facts_of_a_family_and_nothing_internal(loopscale):
    (search,) = loopscale("show", "search", "tpe", "--json").json
    assert search["facts"] == {}
    assert "stateful" not in loopscale("show", "search", "tpe").out
    (solver,) = loopscale("show", "solvers", "oracle_support", "--json").json
    assert list(solver["facts"]) == ["solves", "oracle", "uses pairs"]
    assert solver["facts"]["oracle"] is True


def test_show_prints_types_defaults_and_explanations(loopscale):
    (found,) = loopscale("show", "models", "algoformer", "--json").json
    width = next(setting for setting in found["settings"] if setting["name"] == "width")
    assert width["type"] == "whole number > 0"
    assert "state of a token" in width["about"]
    norm = next(setting for setting in found["settings"] if setting["name"] == "norm")
    assert (norm["type"], norm["default"]) == ("pre | none", "pre")
    (bound,) = loopscale("show", "bounds", "newton_residual", "--json").json
    assert bound["facts"]["source"] == Bound.choices()["newton_residual"].spelled_source()
    assert bound["facts"]["system"] == "linear regression"
    assert "AlgoFormer: an efficient transformer framework" in bound["facts"]["references"]
    assert bound["facts"]["claim"]
    assert "whole number > 0 or none" in loopscale("show", "models", "gpt2").out


def test_show_prints_the_text_of_a_file_with_one_member_before_the_text_of_its_class(loopscale):
    told = loopscale("show", "models", "lstm").out
    assert told.index("Hochreiter and Schmidhuber 1997") < told.index("Garg et al. 2022 use 3 layers")
    told = loopscale("show", "tasks", "chain_of_thought").out
    assert "the floor is 0 after `dim` demonstrations" in told
    told = loopscale("show", "solvers", "lloyd").out
    assert told.index("points to the nearest centre") < told.index("Arthur and Vassilvitskii 2007")


@pytest.mark.parametrize(("what", "family"), [("bounds", Bound), ("constructions", Construction)])
@pytest.mark.parametrize("width", [80, 120])
def test_show_lists_theorems_by_system_within_the_terminal(loopscale, what, family, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    lines = loopscale("show", what).out.splitlines()
    assert max(map(len, lines)) <= width
    listed, system = {}, ""
    for line in lines:
        if line.strip() in SYSTEMS:
            system = line.strip()
        elif line.startswith("   ") and line[3:4].strip():
            kind, *rest = line.split()
            listed[kind] = (system, " ".join(rest))
    assert {kind: system for kind, (system, _) in listed.items()} == {
        kind: member.system() for kind, member in family.choices().items()
    }
    for kind, member in family.choices().items():
        assert listed[kind][1].startswith(member.claimed()), kind
    systems = [system for system, _ in listed.values()]
    assert sorted(systems, key=SYSTEMS.index) == systems


def test_the_claim_of_a_theorem_with_a_hidden_constant_is_a_shape():
    assert Bound.choices()["jin_k2"].claimed() == "≤ shape"
    assert Bound.choices()["chebyshev"].claimed() == "≥"
    assert Construction.choices()["newton"].claimed() == "~ scale^4"
    assert Construction.choices()["lin_ucb"].claimed() == "~ pieces^-2"
    assert Construction.choices()["ucb_vi"].claimed() == "="


@pytest.mark.parametrize("words", [["models"], ["solvers"], ["models", "gpt2"], ["study"], ["training"]])
def test_the_lines_of_show_fit_the_width(loopscale, words, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert max(map(len, loopscale("show", *words).out.splitlines())) <= 130
    monkeypatch.setenv("COLUMNS", "90")
    table = [line for line in loopscale("show", *words).out.splitlines() if line.startswith(" ")]
    assert 60 < max(map(len, table)) <= 90


def test_show_lists_the_keys_of_a_study_file(loopscale):
    (study,) = loopscale("show", "study", "--json").json
    keys = {setting["name"]: setting for setting in study["settings"]}
    assert (keys["question"]["default"], keys["baselines"]["type"]) == ("required", "list of solver")
    told = " ".join(loopscale("show", "study").out.split())
    assert "shows the settings under fixed, nuisance, search" in told
    assert keys["search"]["default"] == {"kind": "tpe", "trials": 8, "seeds": 1, "objectives": ["error"]}
    (search,) = loopscale("show", "search", "tpe", "--json").json
    assert [setting["default"] for setting in search["settings"]] == [8, 1, ["error"]]
    assert "[error]" in loopscale("show", "search", "tpe").out
    kinds = [search["kind"] for search in loopscale("show", "search", "--json").json]
    assert kinds == ["cmaes", "gp", "grid", "nsga2", "random", "tpe"]
    told = loopscale("show", "nuisance").out
    assert "training.lr: {real: [1e-4, 1e-2], scale: log}" in told
    assert "pair of number" in told
    assert loopscale("show", "model", "--json").json == loopscale("show", "models", "--json").json


@pytest.mark.parametrize("what", FAMILIES)
def test_show_answers_for_every_family(loopscale, what):
    assert loopscale("show", what).code == 0


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("what", ["bounds", "constructions"])
def test_theory_is_listed_with_its_sources(loopscale, what: str):
    found = loopscale("show", what, "--json").json
    assert all(each["facts"]["source"] for each in found)
    told = loopscale("show", what).out
    assert all(each["kind"] in told for each in found)
    for each in found:
        alone = " ".join(loopscale("show", what, each["kind"]).out.split())
        assert " ".join(each["facts"]["source"].split()) in alone


def test_json_is_all_of_standard_output(store, elsewhere):
    done = subprocess.run(
        [sys.executable, "-m", "loopscale.cli.main", "best", "tiny", "--store", store, "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(json.loads(done.stdout)["cells"]) == 2
    assert done.stderr == ""


CLAIMS = """\
claims:
  - {text: two loops are better than one, first: {training.loops: 2}, second: {training.loops: 1}, of: error}
  - {text: one loop beats least squares, first: {training.loops: 1}, second: {solver: least_squares}, of: error}
"""


def test_the_claims_of_the_file_judge_records_from_before_the_claims(loopscale, store, study_file, tmp_path):
    (before,) = [loopscale("best", study_file, "--store", store).out]
    assert "Claims." not in before
    mine = tmp_path / "studies" / "tiny.yaml"
    mine.parent.mkdir(exist_ok=True)
    mine.write_text(study_file.read_text() + CLAIMS)
    printed = loopscale("best", mine, "--store", store).out
    assert printed.startswith(before)
    lines = [re.split(r"  +", line) for line in printed.removeprefix(before).splitlines()]
    said = {words[-1].strip(): [word.strip() for word in words[:2]] for words in lines if len(words) > 4}
    assert said["two loops are better than one"] == ["loops = 2 has less error than loops = 1", "holds"]
    found = loopscale("report", mine, "--store", store, "--out", tmp_path / "page.html", "--json").json
    assert [claim["verdict"] for claim in found["claims"]] == ["holds", "does not hold"]
    assert loopscale("best", mine, "--store", store, "--json").json["claims"] == found["claims"]
    page = (tmp_path / "page.html").read_text()
    assert 'id="claims"' in page
    assert "one loop beats least squares" in page
    mine.write_text(study_file.read_text() + CLAIMS.replace("of: error}", "margin: -1}", 1))
    assert "margin is -1; write a number above 0" in loopscale("best", mine, "--store", store).err


def test_without_a_file_the_recorded_claims_are_judged(loopscale, elsewhere, recording, study_file, tmp_path):
    mine = tmp_path / "claiming" / "studies" / "tiny.yaml"
    mine.parent.mkdir(parents=True)
    mine.write_text(study_file.read_text() + CLAIMS)
    with recording(Path("records"), Study.load(mine)) as made:
        made.whole()
    mine.unlink()
    assert "two loops are better than one" in loopscale("best", mine, "--store", "records").out
