"""The parts of MLflow and Ray that loopscale uses and that their makers may change without notice.

`pyproject.toml` has upper bounds for both packages for this reason. If a test fails after an upgrade, the named module
needs work before the bound can rise. One module alone uses each private name.
"""

import ast
import inspect
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "loopscale"
PRIVATE = re.compile(r"_[a-z]\w*")
SESSION, TUNE = "runner/on_ray/session.py", "runner/on_ray/tune.py"
USES = {
    "_tracking_service": ("records/deferred_imports.py", "imports MLflow's memory of artifact folders"),
    "_artifact_repos_cache": ("records/stores/base.py", "empties MLflow's memory of artifact folders"),
    "_tracking_client": ("records/stores/folder.py", "finds the database behind a client"),
    "_get_managed_session_maker": ("records/stores/folder.py", "writes a run in one transaction"),
    "_private": (SESSION, "makes the Ray of this machine private"),
    "_raylet": (SESSION, "lets Ray read its environment again"),
    "_global_node": (SESSION, "watches the processes of a private Ray"),
    "_plasma_directory": (SESSION, "places Ray's memory of objects in the private folder"),
    "_temp_dir": (SESSION, "places Ray's sockets and logs in the private folder"),
    "_py_driver_sys_path": (SESSION, "chooses the folders that workers import from"),
    "_actor_cache": (TUNE, "keeps idle workers, and stops them on a shared cluster"),
    "_actor_manager": (TUNE, "counts the workers for the budget"),
    "_cleanup_cached_actors": (TUNE, "stops the idle worker on a shared cluster"),
    "_failed_trials": (TUNE, "forgets ended trials"),
    "_live_trials": (TUNE, "forgets ended trials"),
    "_pending_trials": (TUNE, "stops the idle worker on a shared cluster"),
    "_stopped_trials": (TUNE, "forgets ended trials"),
    "_trial_metadata": (TUNE, "forgets ended trials"),
    "_trial_to_actor": (TUNE, "chooses a waiting trial without a worker"),
    "_trials_to_cache": (TUNE, "forgets ended trials"),
}
"""Private name -> the only module that uses the name, and the purpose."""
CONTROLLER = {
    "_actor_cache": r"_ObjectCache\(",
    "_actor_manager": r"RayActorManager\(|actor_manager_cls\(",
    "_failed_trials": r"set\(\)",
    "_live_trials": r"set\(\)",
    "_pending_trials": r"set\(\)",
    "_stopped_trials": r"set\(\)",
    "_trial_metadata": r"\{\}",
    "_trial_to_actor": r"\{\}",
    "_trials_to_cache": r"set\(\)",
}
"""Attribute of Tune's controller -> its first value, as the source of Tune writes it."""


def private_names(code: str) -> Iterator[str]:
    """The private names of other packages in the code: attributes, modules, arguments, and names in texts."""
    tree = ast.parse(code)
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    found = list[str]()
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls" | "os" | "sys")):
                continue
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super"))):
                continue
            case ast.Attribute(attr=name) | ast.keyword(arg=str(name)):
                found.append(name)
            case ast.Import(names=names):
                found += [part for each in names for part in each.name.split(".")]
            case ast.ImportFrom(module=str(module), names=names):
                found += [*module.split("."), *(each.name for each in names)]
            case ast.Constant(value=str(text)) if re.fullmatch(r"[\w.]+", text):
                found += text.split(".")
    yield from (name for name in found if PRIVATE.fullmatch(name) and name not in own)


def changed(owner: ModuleType | type | Any, name: str, what: str = "is gone") -> str:
    """The message of a failed test: the change in the other package, and the part of loopscale that needs work."""
    module, purpose = USES[name]
    return (
        f"{getattr(owner, '__name__', owner)}.{name} {what}: src/loopscale/{module} {purpose} with this name"
    )


def require(owner: Any, name: str, kind: type | None = None) -> Any:
    assert hasattr(owner, name), changed(owner, name)
    value = getattr(owner, name)
    assert kind is None or isinstance(value, kind), changed(
        owner, name, f"is now of the type {type(value).__name__}, not {kind and kind.__name__}"
    )
    return value


def parameters(function: object) -> list[str]:
    return list(inspect.signature(function).parameters)  # type: ignore[arg-type]


def missing_attributes(source: str, first_values: Mapping[str, str]) -> list[str]:
    """What changed in the source of Tune's controller, in words."""
    found = list[str]()
    for name, value in first_values.items():
        given = re.findall(rf"self\.{name}(?:: [^=\n]+)? = (.+)", source)
        if not given:
            found.append(changed("TuneController", name))
        elif not any(re.match(value, each) for each in given):
            found.append(changed("TuneController", name, f"begins as {given[0]!r} now, not as {value!r}"))
    return found


def test_each_private_name_of_ray_and_mlflow_is_used_by_one_module():
    used = defaultdict[str, set[str]](set)
    for file in SRC.rglob("*.py"):
        code = file.read_text(encoding="utf-8")
        if re.search(r"\b(ray|mlflow)\b", code):
            for name in private_names(code):
                used[name].add(file.relative_to(SRC).as_posix())
    assert used == {name: {module} for name, (module, _) in USES.items()}


@pytest.mark.parametrize(
    "line",
    [
        "import ray._hidden",
        "from ray._hidden import worker",
        "from ray import _hidden",
        "controller._hidden.increase()",
        'getattr(client, "_hidden", None)',
        'tools = Deferred("mlflow._hidden.utils")',
        "ray.init(_hidden=1)",
        'options = {"_hidden": 1}',
    ],
)
def test_a_private_name_of_another_package_is_found(line: str):
    own = "class A:\n    def _mine(self): return self._kept\n    def f(self): return other._mine\n"
    assert list(private_names(f"{own}{line}\n")) == ["_hidden"]


def test_a_change_of_a_private_name_is_said_in_words():
    module, source = ModuleType("ray.worker"), "self._live_trials = []\nself._failed_trials: set = set()\n"
    with pytest.raises(
        AssertionError, match=r"ray\.worker\._global_node is gone: src/loopscale/runner/on_ray/ses"
    ):
        require(module, "_global_node")
    module._temp_dir = 3  # type: ignore[attr-defined]
    with pytest.raises(
        AssertionError, match=r"_temp_dir is now of the type int, not str: src/.* places Ray's so"
    ):
        require(module, "_temp_dir", str)
    names = {name: CONTROLLER[name] for name in ("_live_trials", "_failed_trials", "_trial_to_actor")}
    first, second = missing_attributes(source, names)
    assert first.startswith("TuneController._live_trials begins as '[]' now, not as ")
    assert second.startswith(
        "TuneController._trial_to_actor is gone: src/loopscale/runner/on_ray/tune.py chooses"
    )


def test_mlflow_makes_sessions_by_a_function_that_a_transaction_replaces():
    """`records/stores/folder.py`, class of the transaction."""
    from mlflow import MlflowClient
    from mlflow.store.db import utils
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    maker = require(utils, "_get_managed_session_maker")
    assert parameters(maker) == ["SessionMaker", "db_type"], changed(
        utils, maker.__name__, f"takes {parameters(maker)} now"
    )
    source = inspect.getsource(SqlAlchemyStore.__init__)
    for name in ("ManagedSessionMaker", "engine", "db_type"):
        assert re.search(rf"self\.{name}(: \w+)? = ", source), (
            f"MLflow's SqlAlchemyStore has no {name} any more"
        )
    client = inspect.getsource(MlflowClient.__init__)
    assert "self._tracking_client = " in client, changed(MlflowClient, "_tracking_client")


def test_mlflow_remembers_artifact_folders_where_a_store_forgets_them():
    """`records/stores/base.py`. Otherwise artifacts for a copied store would be written into the original."""
    from mlflow.tracking._tracking_service import client, utils

    memory = require(utils, "_artifact_repos_cache", dict)
    reads = "utils._artifact_repos_cache"
    assert reads in inspect.getsource(client), changed(client, "_artifact_repos_cache", "is used no more")
    assert callable(memory.clear)


def test_mlflow_sends_questions_to_a_server_with_its_credentials():
    """`records/stores/server.py`."""
    from mlflow.utils.credentials import get_default_host_creds
    from mlflow.utils.rest_utils import http_request, verify_rest_response

    assert parameters(get_default_host_creds)[0] == "store_uri"
    assert parameters(http_request)[:3] == ["host_creds", "endpoint", "method"]
    assert parameters(verify_rest_response)[:2] == ["response", "endpoint"]


def test_ray_names_the_variables_that_it_sends_to_workers():
    """`runner/on_ray/session.py` empties both for the time of a study."""
    from ray.tune.execution import class_cache

    assert isinstance(class_cache.DEFAULT_ENV_VARS, dict)
    assert isinstance(class_cache.ENV_VARS_TO_PROPAGATE, set)


def test_ray_lets_a_driver_choose_the_loopback_interface_a_token_and_its_entry_point():
    """`runner/on_ray/session.py` makes the Ray of this machine private."""
    from ray._private import ray_constants, services, utils, worker
    from ray._raylet import AuthenticationTokenLoader, Config

    assert isinstance(ray_constants.ENABLE_RAY_CLUSTER, bool)
    assert isinstance(ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR, str)
    assert "ray_constants.ENABLE_RAY_CLUSTER" in inspect.getsource(services.get_node_ip_address)
    assert "ray._private.utils.get_entrypoint_name()" in inspect.getsource(worker)
    assert parameters(utils.get_entrypoint_name) == []
    assert callable(AuthenticationTokenLoader.instance().reset_cache)
    assert callable(Config.initialize)


def test_ray_starts_in_a_folder_of_choice_with_processes_that_can_be_watched():
    """`runner/on_ray/session.py`: the folder, the watch, and the folders that workers import from."""
    from ray._private import node, worker
    from ray.job_config import JobConfig

    require(worker, "_global_node")
    started = inspect.getsource(node.Node)
    for name in ("all_processes", "head"):
        assert re.search(rf"self\.{name}\b|def {name}\b", started), (
            f"a node of Ray has no {name} any more: {USES['_global_node'][1]}"
        )
    options = inspect.getsource(worker.init)
    for name in ("_temp_dir", "_plasma_directory"):
        assert re.search(rf"\b{name}\b", options), changed(worker.init, name)
    assert "_py_driver_sys_path" in parameters(JobConfig.__init__), changed(JobConfig, "_py_driver_sys_path")
    asked = "_runtime_env_has_working_dir"
    assert parameters(getattr(JobConfig, asked, lambda: 0)) == ["self"], (
        f"JobConfig.{asked} is gone or takes other arguments: {SESSION} overrides the method"
    )
    assert f"{asked}()" in inspect.getsource(worker), f"Ray does not ask JobConfig.{asked} any more"


def test_tune_keeps_trials_and_workers_where_a_study_reads_them():
    """`runner/on_ray/tune.py`."""
    from ray.tune.execution.tune_controller import TuneController

    assert missing_attributes(inspect.getsource(TuneController), CONTROLLER) == []
    assert "force_all" in parameters(require(TuneController, "_cleanup_cached_actors"))
    from ray.air.execution._internal import RayActorManager
    from ray.tune.utils.object_cache import _ObjectCache

    for owner, names in (
        (_ObjectCache, ["increase_max", "decrease_max", "num_cached_objects"]),
        (RayActorManager, ["num_live_actors"]),
    ):
        for name in names:
            assert hasattr(owner, name), (
                f"{owner.__name__} of Ray has no {name} any more: {TUNE} uses the name"
            )


def test_both_packages_have_an_upper_bound():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    bounds = {need.name: need.specifier for need in map(Requirement, project["dependencies"])}
    for package in ("mlflow", "ray"):
        assert any(limit.operator == "<" for limit in bounds[package]), package
