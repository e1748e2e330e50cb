"""The parts of MLflow and Ray that loopscale uses and that their makers may change without notice.

`pyproject.toml` has upper bounds for both packages for this reason. If a test fails after an upgrade, the module in its
docstring needs work before the bound can rise.
"""

import inspect
import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement


def parameters(function: object) -> list[str]:
    return list(inspect.signature(function).parameters)  # type: ignore[arg-type]


def test_mlflow_makes_sessions_by_a_function_that_a_transaction_replaces():
    """`records/stores/folder.py`, class of the transaction."""
    from mlflow.store.db.utils import _get_managed_session_maker
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    assert parameters(_get_managed_session_maker) == ["SessionMaker", "db_type"]
    source = inspect.getsource(SqlAlchemyStore.__init__)
    assert re.search(r"self\.ManagedSessionMaker = ", source)
    assert re.search(r"self\.engine = ", source)


def test_mlflow_sends_questions_to_a_server_with_its_credentials():
    """`records/stores/server.py`."""
    from mlflow.utils.credentials import get_default_host_creds
    from mlflow.utils.rest_utils import http_request, verify_rest_response

    assert parameters(get_default_host_creds)[0] == "store_uri"
    assert parameters(http_request)[:3] == ["host_creds", "endpoint", "method"]
    assert parameters(verify_rest_response)[:2] == ["response", "endpoint"]


def test_ray_names_the_variables_that_it_sends_to_workers():
    """`runner/on_ray/tune.py` empties both for the time of a study."""
    from ray.tune.execution import class_cache

    assert isinstance(class_cache.DEFAULT_ENV_VARS, dict)
    assert isinstance(class_cache.ENV_VARS_TO_PROPAGATE, set)


def test_ray_lets_a_driver_choose_the_loopback_interface_a_token_and_its_entry_point():
    """`runner/on_ray/session.py` makes the Ray of this machine private."""
    from ray._private import ray_constants, services, utils, worker
    from ray._raylet import AuthenticationTokenLoader, Config

    assert isinstance(ray_constants.ENABLE_RAY_CLUSTER, bool)
    assert "ray_constants.ENABLE_RAY_CLUSTER" in inspect.getsource(services.get_node_ip_address)
    assert "ray._private.utils.get_entrypoint_name()" in inspect.getsource(worker)
    assert parameters(utils.get_entrypoint_name) == []
    assert callable(AuthenticationTokenLoader.instance().reset_cache)
    assert callable(Config.initialize)


def test_both_packages_have_an_upper_bound():
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    bounds = {need.name: need.specifier for need in map(Requirement, project["dependencies"])}
    for package in ("mlflow", "ray"):
        assert any(limit.operator == "<" for limit in bounds[package]), package
