"""Tables of answers in notebooks."""

import numpy as np
import pandas as pd

from loopscale.analysis.table import MOST_ROWS, CaptionedTable, Column, StyledTable, frame

LONG = "the interval lies below the predicted 1.27; per 1,000 steps of this schedule, still falling"
COLUMNS = [Column.attribute(name) for name in ("name", "error", "steps", "because")]


def table() -> pd.DataFrame:
    rows = pd.DataFrame(
        {
            "name": ["first", "second"],
            "error": [0.2590621, np.nan],
            "steps": [4000.0, 250.0],
            "because": [LONG, None],
        }
    )
    return frame(COLUMNS, list(rows.itertuples()))


def test_a_notebook_shows_three_digits_whole_texts_and_dashes():
    html = table()._repr_html_()
    assert "<td>0.259</td>" in html
    assert f"<td>{LONG}</td>" in html
    assert "<td>4,000</td>" in html
    assert html.count("<td>–</td>") == 2
    assert "NaN" not in html
    assert "..." not in html
    assert html.count("<tr") == 3, "the name of the rows is in the one row of headings"


def test_a_selection_keeps_the_style_and_loses_the_caption():
    captioned = CaptionedTable(table(), ["A sentence."])
    assert "<p>A sentence.</p>" in captioned._repr_html_()
    selected = captioned[["error"]]._repr_html_()
    assert "0.259" in selected
    assert "0.259062" not in selected
    assert "A sentence" not in selected


def test_the_values_of_a_table_keep_all_digits():
    assert table().loc["first", "error"] == 0.2590621


def test_single_precision_ranges_and_long_tables_have_three_digits_too():
    mixed = StyledTable(
        {"a": [np.float32(0.123456), (28606464000.0, 28606464000.0), (1.23456, 2.34567)]}, dtype=object
    )
    html = mixed._repr_html_()
    assert "<td>0.123</td>" in html
    assert "<td>2.86e+10</td>" in html
    assert "<td>1.23 .. 2.35</td>" in html
    long = StyledTable({"a": np.full(MOST_ROWS + 1, 0.123456)})._repr_html_()
    assert "0.123" in long
    assert "0.1234" not in long
