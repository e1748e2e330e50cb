"""Readers' names of members."""

import importlib
import subprocess
import sys

import pytest

from loopscale.core import titles
from loopscale.core.plugins import families
from loopscale.core.titles import FOLDERS, bound_name, readable


@pytest.mark.parametrize("package", FOLDERS.values())
def test_the_titles_in_the_source_texts_are_those_of_the_members(package):
    importlib.import_module(f"{package}.base")
    [family] = [each for each in families if each._package == package]
    read = titles._titles_of_package()[package]
    kinds = {kind for kind in family.choices() if family.choices()[kind].__module__.startswith(package)}
    assert set(read) <= kinds
    declared = {kind: title for (owner, kind), title in titles._declared.items() if owner == package}
    assert {kind: declared[kind] for kind in kinds & set(declared)} == read


def test_labels_have_titles_and_settings_keep_their_names():
    assert readable("algoformer, loops=4") == "AlgoFormer, loops=4"
    assert readable("gpt2, optimizer=muon") == "GPT-2, optimizer=Muon"
    assert readable("newton=3, my_newton, newton.rate") == "newton=3, my_newton, newton.rate"
    assert readable("lin ucb after 6 steps") == "LinUCB after 6 steps"
    assert readable("looped") == "looped"


def test_names_of_bounds():
    assert bound_name("first_order_best") == "best first-order method"
    assert bound_name("exact_recovery") == "exact recovery"
    assert bound_name(None) == ""


def test_a_name_for_readers_is_readable_already():
    for package in FOLDERS.values():
        for title in titles.titles(package).values() if package != titles.PACKAGE_OF_BOUNDS else ():
            assert readable(title) == title


def test_members_of_plugins_declare_titles():
    try:
        titles.declare_title("loopscale.models", "my_net", "MyNet")
        assert readable("my_net, width=3") == "MyNet, width=3"
    finally:
        del titles._declared["loopscale.models", "my_net"]
        titles._pattern.cache_clear()
    assert readable("my_net") == "my_net"


def test_names_need_no_torch():
    code = "import sys; from loopscale.core.titles import readable; readable('gpt2'); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
