"""Write the report of a study's results so far to standard output. The server starts this module as a process."""

import json
import sys
from typing import Any

from loopscale.core.visible import tell, visible
from loopscale.live.process import be_nice


def report(place: dict[str, Any]) -> str:
    """The report as HTML. Raises LoopscaleError."""
    # Imported here, because the imports take seconds and `be_nice` comes before them.
    from loopscale.analysis.recorded.load import load_results, with_claims
    from loopscale.analysis.report.study_page import study_page
    from loopscale.notation.plugins import load_recorded_plugins
    from loopscale.records.stores.opening import open_store

    store, study = open_store(place["store"], place["storage"]), place["study"]
    results = load_results(store, study)
    file = place.get("file") or study
    load_recorded_plugins(file, study, results.study.get("plugins") or ())
    return study_page(with_claims(results, file))


def main() -> int:
    be_nice()
    try:
        page = report(json.load(sys.stdin))
    except Exception as problem:
        tell(visible(f"no report yet ({' '.join(str(problem).split())}); try again later"))
        return 1
    sys.stdout.write(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
