"""The types of what the interface and the command line pass around, for annotations in quotes: `"types.Study"`.

Their modules import torch, pandas or pydantic, and the program starts without these. The types do not exist while the
program runs. A function imports the names that it calls.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a start of the program waits for none of these modules
    from pandas import DataFrame
    from pyarrow import ChunkedArray
    from pyarrow import Table as ArrowTable
    from rich.console import Console
    from rich.table import Table as RichTable

    from loopscale.analysis.answers.best_cells import Best
    from loopscale.analysis.answers.claims import JudgedClaim
    from loopscale.analysis.answers.findings import Findings
    from loopscale.analysis.answers.standings import Standing
    from loopscale.analysis.answers.two_studies import TwoStudies
    from loopscale.analysis.notebook import StudyResults
    from loopscale.analysis.recorded.results import Results, TrialResult
    from loopscale.analysis.table import Column, Row
    from loopscale.cluster.base import Cluster, Prices, Request, Submission
    from loopscale.core.config import Config, Family
    from loopscale.doctor.examination import Examined
    from loopscale.foresight.held_hosts import HeldHosts
    from loopscale.foresight.learning_times import ExpectedLearning
    from loopscale.foresight.noise import Noise
    from loopscale.foresight.plan import CellPlan, Offer, StudyPlan, UntilPlan
    from loopscale.foresight.power import QuestionFamily, QuestionPower
    from loopscale.foresight.room import AxisRoom, StudyRoom, TaskRoom
    from loopscale.live.driver_page import LivePage
    from loopscale.records.mirror import Mirror
    from loopscale.records.model import Run
    from loopscale.records.stores.base import Store
    from loopscale.records.study_records import Spending
    from loopscale.runner.callbacks import Callback
    from loopscale.runner.decide.conductor import Conductor
    from loopscale.runner.progress import ProgressDisplay
    from loopscale.runner.simulation.forecast import Forecast
    from loopscale.runner.simulation.simulate import SimulatedCluster
    from loopscale.runner.simulation.until import UntilForecast
    from loopscale.studies.spec import Study
    from loopscale.theory.bounds.base import Bound
    from loopscale.theory.constructions.base import Construction
    from loopscale.training.trial import Trial
