import pytest
import torch
from torch import Tensor

from loopscale.core.prompt import Batch
from loopscale.core.seeds import stream
from loopscale.models.base import Model, Net
from loopscale.papers import probing
from loopscale.solvers.regression import LeastSquares
from loopscale.tasks.base import Task

TASK = Task.model_validate({"kind": "linear_regression", "dim": 3, "points": 6})


class PlantedNet(Net):
    """Step 1 holds a mix of the input's coordinates. Step 2 also holds the least-squares answer."""

    depth = 2

    def __init__(self) -> None:
        super().__init__()
        self.mix = torch.nn.Parameter(torch.randn(4, 4, generator=stream("mix"), dtype=torch.float64))

    def forward(self, tokens: Tensor, steps: int, first: int = 1, truncate: bool = False) -> Tensor:
        raise NotImplementedError

    def states(self, tokens: Tensor, steps: int) -> Tensor:
        self.check(steps, 1)
        xs, ys = tokens[:, ::2, :3], tokens[:, 1::2, 3]
        problem = TASK.sample(1, stream(0)).problem
        batch = Batch(tokens, ys[..., None], torch.arange(6), type(problem)(xs, ys, 0.0, 1.0))
        known = LeastSquares().predict(batch, 1)[0]
        plain = torch.cat([xs, torch.zeros_like(known)], dim=-1) @ self.mix
        states = torch.stack([plain, torch.cat([xs, known], dim=-1) @ self.mix])
        return states.repeat_interleave(2, dim=2)[:steps]


def test_a_probe_reads_only_values_that_the_state_holds():
    errors = probing.probe_errors(PlantedNet(), TASK, lambda batch: LeastSquares().predict(batch, 1)[-1], 2)
    assert errors.shape == (2,)
    assert errors[0] > 0.9
    assert errors[1] < 1e-12
    coordinates = probing.probe_errors(PlantedNet(), TASK, lambda batch: batch.problem.xs, 2)
    assert (coordinates < 1e-12).all()


def test_the_held_out_error_equals_least_squares_by_hand():
    net = Model.model_validate({"kind": "gpt2", "layers": 2, "width": 8, "heads": 2}).build(
        TASK.prompt, stream(0)
    )
    errors = probing.probe_errors(net, TASK, probing.target_weights, 2, prompts=100, held_out=70)
    train, test = (
        [TASK.sample(n, stream("probing", name, start)) for start, n in blocks]
        for name, blocks in (("probe", [(0, 64), (64, 36)]), ("held out", [(0, 64), (64, 6)]))
    )
    for step in (0, 1):
        a, b = (
            torch.cat([net.states(each.tokens, 2)[step, :, each.queries] for each in batches]).flatten(0, 1)
            for batches in (train, test)
        )
        wanted, held = (
            torch.cat([probing.target_weights(each) for each in batches]).flatten(0, 1)
            for batches in (train, test)
        )
        a, b = (
            torch.cat([each.detach().double(), torch.ones(len(each), 1).double()], dim=1) for each in (a, b)
        )
        by_hand = (b @ torch.linalg.lstsq(a, wanted).solution - held).square().sum() / held.square().sum()
        assert errors[step] == pytest.approx(float(by_hand), rel=1e-3)


def test_the_target_weights_are_least_squares_on_the_pairs_seen():
    batch = TASK.sample(4, stream("weights"))
    weights = probing.target_weights(batch)
    answers = torch.einsum("bpd,bpd->bp", weights, batch.problem.xs.double())
    torch.testing.assert_close(answers, LeastSquares().predict(batch, 1)[0, ..., 0], atol=1e-5, rtol=1e-5)


def test_a_net_with_probes_answers_through_the_probes():
    net = probing.with_probes(PlantedNet(), TASK, 2)
    batch = TASK.sample(32, stream("read"))
    error = TASK.error(net.predict(batch, 2), batch).mean((1, 2))
    least = TASK.error(LeastSquares().predict(batch, 1), batch).mean()
    assert error[1] < 1.05 * least < error[0]
    assert net.predict(batch, 1).shape == (1, 32, 6, 1)
    with pytest.raises(ValueError, match="3 steps are more than the 2"):
        net.predict(batch, 3)
