"""The contract of every family, as tests: of the package's own members, and of outside members with `loopscale check`.

pytest collects these modules. `members.py` chooses the members under test, and `plugin.py` is the plugin of pytest.
"""
