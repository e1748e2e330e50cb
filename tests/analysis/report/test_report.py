import itertools
import json
import re
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pytest

from loopscale.analysis.answers.findings import study_findings
from loopscale.analysis.figures.cells import replicates
from loopscale.analysis.figures.curves import against_loops
from loopscale.analysis.figures.settings import against_axis
from loopscale.analysis.figures.style import blank, with_decimal_ticks
from loopscale.analysis.recorded.axes import independent_axes
from loopscale.analysis.report.study_page import study_page
from loopscale.contracts.planted_study import Planted, comparison


class Page(HTMLParser):
    """The addresses that a page would load, its identifiers, and its text outside scripts."""

    def __init__(self, text: str):
        super().__init__()
        self.loads: list[str] = []
        self.ids: list[str] = []
        self.text, self.inside = "", ""
        self.scripts = 0
        self.headings: list[int] = []
        self.tables: list[dict[str, int]] = []
        self.attributes: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.inside = tag
        self.scripts += tag == "script"
        self.attributes.append((tag, dict(attrs)))
        if re.fullmatch(r"h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag == "table":
            self.tables.append({"caption": 0, "scoped": 0, "th": 0})
        if self.tables and tag in ("caption", "th"):
            self.tables[-1][tag] += 1
            self.tables[-1]["scoped"] += any(name == "scope" for name, _ in attrs)
        for name, value in attrs:
            if name in ("src", "href", "srcset", "data", "action") and not (value or "").startswith(
                ("#", "data:")
            ):
                self.loads.append(value)
            if name == "id":
                self.ids.append(value)

    def handle_data(self, data):
        if self.inside not in ("script", "style"):
            self.text += data


def page(planted: Planted) -> str:
    return study_page(planted.results, {"commit": "abc123", "study file": "question: ?\n"})


@pytest.fixture(scope="module")
def full() -> str:
    return page(comparison())


def test_the_page_loads_nothing_and_is_under_five_megabytes(full):
    assert Page(full).loads == []
    assert "@import" not in full.split("<script>")[0]
    assert "url(" not in full.split("<script>")[0]
    assert len(full.encode()) < 5_000_000


def test_the_page_holds_question_answer_baselines_outcomes_and_provenance(full):
    text = Page(full).text
    parts = (
        "Does the error fall with loops?",
        "Lowest error: 0.1",
        "gradient descent",
        "3 of 3 replicated",
        "loss is nan at step 40",
        "rung 300: 6th of 8",
        "1 diverged",
        "abc123",
        "question: ?",
    )
    for part in parts:
        assert part in text, part


def test_every_figure_has_a_place_a_title_a_caption_and_numbers(full):
    ids = Page(full).ids
    drawn = re.findall(r'^draw\("(\w+)"', full, flags=re.M)
    assert {"loops0", "points0", "runs0", "law0", "tuning0", "learning"} <= set(drawn)
    for name in drawn:
        assert {name, f"{name}-title", f"{name}-text", f"{name}-numbers"} <= set(ids)
    assert len(ids) == len(set(ids))


def test_headings_are_in_order_tables_have_captions_and_figures_have_names(full):
    parsed = Page(full)
    assert parsed.headings[0] == 1
    assert parsed.headings.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(parsed.headings))
    assert len(parsed.tables) >= 6
    assert all(table["caption"] == 1 and table["th"] == table["scoped"] > 0 for table in parsed.tables)
    figures = [attributes for tag, attributes in parsed.attributes if tag == "figure"]
    assert figures
    assert all(set((figure["aria-labelledby"] or "").split()) <= set(parsed.ids) for figure in figures)
    assert ("html", {"lang": "en"}) in parsed.attributes
    regions = [attributes for _, attributes in parsed.attributes if attributes.get("role") == "region"]
    assert all(region["tabindex"] == "0" and region["aria-label"] for region in regions)


def test_an_outside_address_is_in_the_page_only_as_text():
    """Plotly's own script contains addresses that it does not load. A test in a browser checks that."""
    planted = comparison()
    planted.study["source"] = "https://nowhere.example/paper"
    outside = re.sub(r"<script>.*?</script>", "", page(planted), flags=re.S)
    assert outside.count("http") == 1
    assert "https://nowhere.example/paper" in Page(outside).text


def test_the_page_shows_costs_reasons_and_open_questions():
    planted = comparison(noise=0.5)
    plan = [
        {"key": cell["key"], "tuning": 4, "replicates": 3, "flops": [1e9, 1e9], "trained_share": 1.0}
        for cell in planted.study["cells"]
    ]
    planted.study["plan"] = plan
    findings = study_findings(planted.results)
    assert findings.open
    text = Page(page(planted)).text
    assert "Open questions and what would decide them" in text
    assert findings.open[0].what in text
    assert "KeyError: 'x'" in text
    assert "7e+09" in text  # of one cell, without pruning
    assert "2.1e+10" in text


@pytest.mark.parametrize(("low", "high"), [(0.91, 0.93), (0.87, 0.96), (0.1, 0.2), (0.05, 2.0), (1e-6, 1.0)])
def test_a_logarithmic_axis_has_3_to_25_ticks(low, high):
    figure = blank("x", "y", log_x=False)
    figure.add_scatter(x=[1, 2], y=[low, high])
    axis = with_decimal_ticks(figure).layout.yaxis
    bottom, top = (10**end for end in axis.range)
    visible = [
        text for place, text in zip(axis.tickvals, axis.ticktext, strict=True) if bottom <= place <= top
    ]
    assert 3 <= len(visible) <= 25
    assert len(visible) == len(set(visible))


def test_an_algorithm_far_from_the_nets_does_not_compress_the_measured_values():
    figure = blank("x", "y", log_x=False)
    figure.add_scatter(x=[1, 2], y=[0.1, 0.3])
    figure.add_scatter(x=[1, 2], y=[1e-9, 1e5], line={"dash": "dash"})
    bottom, top = with_decimal_ticks(figure).layout.yaxis.range
    assert (10**bottom, 10**top) == (pytest.approx(0.01, rel=0.3), pytest.approx(3, rel=0.3))


def test_a_figure_shows_the_whole_of_every_interval():
    planted = comparison(noise=0.5)
    results = planted.results
    cells = results.cells
    drawn = with_decimal_ticks(replicates(results, cells))
    low, high = (10**end for end in drawn.layout.xaxis.range)
    bars = [trace for trace in drawn.data if trace.error_x.array is not None]
    assert len(bars) == len(cells)
    assert all(low < trace.x[0] - trace.error_x.arrayminus[0] for trace in bars)
    assert all(trace.x[0] + trace.error_x.array[0] < high for trace in bars)
    assert list(drawn.layout.yaxis.categoryarray) == list(
        dict.fromkeys(name for trace in drawn.data for name in trace.y)
    )


def test_a_study_with_no_finished_trial_has_a_page_that_says_so():
    planted = Planted()
    planted.trial(planted.cell("a"), "tuning", 0, float("nan"), outcome="diverged", detail="loss is nan")
    text = Page(page(planted)).text
    assert "No trial has finished yet" in text
    assert "Nothing to draw yet" in text


def test_a_study_without_any_trial_or_baseline_has_a_page():
    planted = Planted()
    planted.cell("a")
    assert "No classical algorithm" in Page(page(planted)).text


def test_a_study_in_progress_shows_the_finished_trials():
    planted = comparison()
    planted.cell("model.kind=later", **{"model.kind": "later"})
    text = Page(page(planted)).text
    assert "1 of 4 cells have no finished trial yet" in text
    assert "0 of 4 tuned" in text


def test_names_are_shown_as_text_and_never_as_markup():
    planted = Planted()
    evil = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"
    planted.study |= {"name": evil, "question": evil}
    cell = planted.cell(evil)
    planted.replicated(cell, 0.1)
    planted.trial(cell, "tuning", 9, float("nan"), outcome="failed", detail=evil)
    planted.study["laws"] = [{"of": "error", "along": "loop", "form": ["exponential"]}]
    text = page(planted)
    assert Page(text).loads == []
    assert Page(text).scripts == 2
    results = planted.results
    names = [trace.name for trace in against_loops(results, results.cells).data]
    assert not any("<" in (name or "") for name in names), "plotly interprets tags in names"
    assert "<img" not in re.sub(r"<script>.*?</script>", "", text, flags=re.S)


def test_error_against_loops_draws_means_baselines_and_rings_at_t():
    planted = comparison()
    curves, results = planted.tables[1], planted.results
    drawn = {trace.name: trace for trace in against_loops(results, results.cells).data}
    runs = curves[curves["trial"].str.startswith("replicate-cell0")]
    expected = runs.groupby("loop")["error"].mean().tolist()
    assert list(drawn["model.kind=AlgoFormer"].y) == pytest.approx(expected, rel=1e-3)
    assert drawn["gradient descent"].line.dash is not None
    assert [t.x for t in against_loops(results, results.cells).data if t.marker.size == 14] == ([(6,)] * 3)


def test_best_answers_without_torch_plotly_or_mlflow():
    code = "import sys, json, loopscale.analysis.answers.comparisons; print(json.dumps(sorted(sys.modules)))"
    loaded = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
    assert not {"torch", "plotly", "mlflow", "ray", "optuna"} & set(loaded)


def test_the_figure_of_an_axis_has_a_line_for_each_value_of_the_other_axes():
    planted = Planted()
    for window in (2, 4):
        for loops in (4, 8, 16):
            values = {"training.loops": loops, "training.window": window}
            planted.replicated(planted.cell(f"loops={loops}, window={window}", **values), window / loops)
    assert independent_axes(planted.results, 3) == ["training.loops"]
    drawn = {trace.name: trace for trace in against_axis(planted.results, "training.loops").data}
    assert set(drawn) == {"window=2", "window=4"}
    assert list(drawn["window=2"].x) == [4, 8, 16]
    middle, below = np.array(drawn["window=2"].y), np.array(drawn["window=2"].error_y.arrayminus)
    assert np.allclose(middle, [2 / 4, 2 / 8, 2 / 16], rtol=0.3)
    assert ((below > 0) & (below < middle)).all()


def test_a_page_of_several_models_shows_the_front_against_flops_and_time():
    planted = comparison()
    rows = planted.results.trials.assign(**{"training.steps": 1000, "training.window": planted.loops})
    text = Page(study_page(planted.changed(trials=rows))).text
    for part in ("Regret against FLOPs", "Regret against time", "Which cell is best at which cost"):
        assert part in text, part
    one = rows.assign(**{"model.kind": "looped"})
    assert "Which cell is best at which cost" not in Page(study_page(planted.changed(trials=one))).text
