"""The names that `import loopscale` offers. Each name is imported at its first use."""

from loopscale import errors as errors
from loopscale.analysis.notebook import StudyResults as StudyResults
from loopscale.interface.answers import best as best
from loopscale.interface.comparing import compare as compare
from loopscale.interface.planning import plan as plan
from loopscale.interface.queries import query as query
from loopscale.interface.queries import results as results
from loopscale.interface.reports import report as report
from loopscale.interface.running import RunSummary as RunSummary
from loopscale.interface.running import run as run
from loopscale.interface.simulating import simulate as simulate
from loopscale.live.driver_page import LivePage as LivePage
from loopscale.records.stores.base import Store as Store
from loopscale.records.stores.opening import open_store as open_store
from loopscale.runner.callbacks import Callback as Callback
from loopscale.runner.progress import progress_display as progress_display
from loopscale.studies.spec import Study as Study

__version__: str
