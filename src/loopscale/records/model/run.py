"""Runs as MLflow knows them, and looking for many of them at once."""

import hashlib
import string
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from loopscale.records.model.note import EVALUATE, RUNG, STUDY
from loopscale.records.stores.store import Store

ACTIVE, DELETED = "ACTIVE_ONLY", "DELETED_ONLY"
PAGE = 200
"""Runs that a server is asked for at a time: a busy one takes longer for 1,000 than a request may last (seen)."""


@dataclass
class Run:
    """A run as MLflow knows it, its metrics by their last values."""

    id: str
    status: str
    start: int
    end: int
    tags: dict[str, str] = field(default_factory=dict)
    params: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    experiment: str = ""

    @property
    def fingerprint(self) -> str:
        """Changes with whatever is written to the run: a note moves a metric, a tag or the status."""
        text = repr((self.status, self.end, sorted(self.tags.items()), sorted(self.metrics.items())))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def curves(self) -> list[str]:
        """The metrics that have a history worth keeping: not settings, nor what is said once."""
        once = (*self.params, "step", "flops")
        return [name for name in self.metrics if name not in once and not name.startswith((RUNG, EVALUATE))]


def parents(store: Store, experiment: str) -> list[Run]:
    """The run that a study's trials are children of, if there is one. Raises what MLflow's client raises."""
    if store.exported:
        return [run for run in store.exported.runs(experiment) if run.tags.get("role") == STUDY]
    return _Asked(store, [experiment], ACTIVE).page(f"tags.role = '{STUDY}'")[0]


def search(
    store: Store, experiments: list[str], condition: str = "", threads: int = 8, view: str = ACTIVE
) -> list[Run]:
    """The runs of which MLflow's `condition` is true, in no order. Raises what MLflow's client raises.

    More than a page is asked for by the first digit of a run's id, several digits at a time: a server answers from
    several processes, and in pages one after the other each has to pass over all that came before.
    """
    ask = _Asked(store, experiments, view)
    found, token = ask.page(condition)
    if not token:
        return found

    def beginning_with(digit: str) -> list[Run]:
        both = " and ".join(filter(None, [condition, f"attributes.run_id LIKE '{digit}%'"]))
        found, token = ask.page(both)
        while token:
            more, token = ask.page(both, token)
            found += more
        return found

    with ThreadPoolExecutor(threads) as pool:
        return [run for part in pool.map(beginning_with, string.hexdigits[:16]) for run in part]


class _Asked:
    """Pages of runs. A server's answer is read as it comes: MLflow's client takes 1.7 ms a run for its objects."""

    def __init__(self, store: Store, experiments: list[str], view: str) -> None:
        self.client, self.uri, self.experiments, self.view = store.client, store.uri, experiments, view

    def page(self, condition: str, token: str | None = None) -> tuple[list[Run], str | None]:
        if not self.uri.startswith("http"):
            from mlflow.entities import ViewType

            view = ViewType.from_string(self.view.lower())
            page = self.client.search_runs(self.experiments, condition, view, PAGE, page_token=token)
            return [_from_client(run) for run in page], page.token
        from mlflow.utils.credentials import get_default_host_creds
        from mlflow.utils.rest_utils import http_request, verify_rest_response

        endpoint = "/api/2.0/mlflow/runs/search"
        wanted = {"experiment_ids": self.experiments, "filter": condition, "max_results": PAGE}
        wanted["run_view_type"] = self.view
        wanted |= {"page_token": token} if token else {}
        answer = http_request(get_default_host_creds(self.uri), endpoint, "POST", json=wanted)
        said = verify_rest_response(answer, endpoint).json()
        return [_from_json(run) for run in said.get("runs", ())], said.get("next_page_token")


def _from_client(run: Any) -> Run:
    info, data = run.info, run.data
    return Run(
        info.run_id, info.status, info.start_time, info.end_time or 0,
        dict(data.tags), dict(data.params), dict(data.metrics), info.experiment_id,
    )  # fmt: skip


def _from_json(run: dict[str, Any]) -> Run:
    info, data = run["info"], run.get("data", {})
    tags, params, metrics = (
        {pair["key"]: pair.get("value", "") for pair in data.get(name, ())}
        for name in ("tags", "params", "metrics")
    )
    return Run(
        info["run_id"], info["status"], int(info["start_time"]), int(info.get("end_time", 0)),
        tags, params, {name: float(value or 0.0) for name, value in metrics.items()}, info["experiment_id"],
    )  # fmt: skip
