"""How the error goes along a chain of thought, step by step (AlgoFormer, figure 2c, which shows their mean)."""

# pandas types every selection as a union of all that it could be: those rules find nothing here but that.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false, reportOperatorIssue=false

import pandas as pd
import plotly.graph_objects as go

from loopscale.analysis.answers.claims import Records
from loopscale.analysis.figures import against_points
from loopscale.analysis.notebook_tables import drawn


def against_chain_steps(records: Records, demonstrations: int | None = None) -> go.Figure:
    """Error at loop T at every step of the chain that has so many demonstrations before it; by default the last chain.

    Says so in the figure where nothing has been run. Raises ValueError where no trial is about chains, or none has so
    many demonstrations.
    """
    if records.trials.empty:
        return drawn(go.Figure())
    cells = [cell["key"] for cell in records.study["cells"]]
    curves = steps_of_chain(records.trials, records.curves, demonstrations)
    figure = against_points(records.study, records.trials, curves, cells)
    figure.update_xaxes(title_text="step of the chain (count)", dtick=1)
    return drawn(figure)


def steps_of_chain(
    trials: pd.DataFrame, curves: pd.DataFrame, demonstrations: int | None = None
) -> pd.DataFrame:
    """The part of `curves` that is about one chain, its `point` replaced by the step of the chain, 1 .. depth.

    Raises ValueError as above.
    """
    if "task.depth" not in trials or trials["task.depth"].isna().all():
        raise ValueError("no trial of this study is about chains of thought; its task needs a depth")
    sizes = trials.dropna(subset=["task.depth"]).set_index("trial")[["task.depth", "task.points"]].astype(int)
    known = curves[curves["trial"].isin(sizes.index)]
    depth, chains = (known["trial"].map(sizes[name]) for name in ("task.depth", "task.points"))
    of_chain = known["point"] // depth == (chains - 1 if demonstrations is None else demonstrations)
    if demonstrations is not None and not of_chain.any():
        most = sizes["task.points"].max() - 1
        raise ValueError(f"no chain has {demonstrations} demonstrations before it; write 0 .. {most}")
    return known[of_chain].assign(point=(known["point"] % depth + 1)[of_chain])
