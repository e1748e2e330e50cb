"""Soft UCB-VI, compared with sweeps over all stages and with backward induction."""

import math

import numpy as np
import pytest
import torch
from scipy.special import softmax

from loopscale.core.prompt import Prompt
from loopscale.theory.constructions.base import blocks
from loopscale.theory.constructions.ucb_vi import UcbVi, random_episodes, value_sweeps
from loopscale.theory.constructions.verification import approach, order

SIZES = [(1, 2, 2, 3), (3, 3, 2, 30), (4, 2, 3, 30), (3, 2, 5, 40), (2, 2, 9, 30)]


class Played:
    """Episodes of random play in a random problem, and a query for every stage and state."""

    def __init__(self, stages: int, states: int, actions: int, count: int, seed: int = 0) -> None:
        self.sizes = stages, states, actions
        self.parts = [
            part.double()
            for part in random_episodes(torch.Generator().manual_seed(seed), self.sizes, count, prompts=1)
        ]
        log = torch.cat(self.parts, -1).expand(stages * states, -1, -1)
        asked = [(h, s) for h in torch.eye(stages) for s in torch.eye(states)]
        last = torch.stack([torch.cat([h, s, torch.zeros(actions + 1 + states)]) for h, s in asked])
        self.tokens = torch.cat([log, last[:, None].double()], 1)
        self.prompt = Prompt(self.tokens.shape[1], self.tokens.shape[2], actions)

    def run(self, construction: UcbVi, steps: int) -> np.ndarray:
        """The policy at every stage and state, after every step: [steps, H, S, A]."""
        policies = construction.net(self.prompt)(self.tokens, steps)[:, :, -1]
        return policies.numpy().reshape(steps, *self.sizes)

    def induced(self, construction: UcbVi) -> tuple[np.ndarray, np.ndarray]:
        """Q by induction from the last stage, and the number of visits, counted one by one."""
        stages, states, _ = self.sizes
        visits, sums, counts = np.zeros(self.sizes), np.zeros(self.sizes), np.zeros((*self.sizes, states))
        h, s, a, after = (part[0].argmax(-1).tolist() for n, part in enumerate(self.parts) if n != 3)
        for *cell, reward, following in zip(h, s, a, self.parts[3].flatten().tolist(), after, strict=True):
            visits[*cell] += 1
            sums[*cell] += reward
            counts[*cell, following] += 1
        m = np.maximum(1, visits)
        base, p = sums / m + 2 * stages * np.sqrt(construction.confidence / m), counts / m[..., None]
        v, policies = np.zeros(states), []
        for stage in reversed(range(stages)):
            policies.append(np.minimum(base[stage] + p[stage] @ v, stages))
            v = policies[-1].max(-1)
        return np.stack(policies[::-1]), visits


@pytest.mark.parametrize("maximum", ["tournament", "softmax"])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_steps_are_sweeps_and_horizon_minus_one_sweeps_are_backward_induction(
    maximum: str, sizes: tuple[int, ...]
):
    construction = UcbVi.model_validate({"maximum": maximum, "horizon": sizes[0], "confidence": 0.03})
    played, steps = Played(*sizes), sizes[0] + 1
    policies = played.run(construction, steps)
    q = value_sweeps(*played.parts, construction.confidence, steps)[:, 0].numpy()
    assert np.abs(policies - softmax(q / construction.temperature, -1)).max() < 1e-11
    best = softmax(played.induced(construction)[0] / construction.temperature, -1)
    assert np.abs(policies[max(sizes[0] - 1, 1) - 1 :] - best).max() < 1e-11
    assert sizes[0] < 3 or np.abs(policies[0] - best).max() > 1e-3, "more than one sweep must be needed"


@pytest.mark.parametrize("confidence", [0.0, 0.25, 1.0])
def test_unplayed_cells_have_the_largest_value_if_the_bonus_is_large(confidence: float):
    played = Played(3, 3, 4, 8)
    construction = UcbVi(confidence=confidence, temperature=1.0)
    q, visits = played.induced(construction)
    assert np.abs(played.run(construction, 2)[-1] - softmax(q, -1)).max() < 1e-11
    assert (visits == 0).any()
    assert (q[visits == 0] == (0 if confidence == 0 else 3)).all()


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_the_net_has_the_stated_number_of_layers(sizes: tuple[int, ...]):
    played, (stages, _, actions, _) = Played(*sizes), sizes
    levels = math.ceil(math.log2(actions))
    for maximum, cell in (("tournament", 1 + levels), ("softmax", 2)):
        net = UcbVi.model_validate({"maximum": maximum, "horizon": stages}).net(played.prompt)
        within = len(net.loop.stack.blocks)
        assert within == cell
        assert len(blocks(net)) - within + (stages - 1) * within == 4 + (stages - 1) * cell
    assert 4 + (stages - 1) * cell == 2 * stages + 2 <= 2 * stages + 8


@pytest.mark.parametrize("sharpness", [1.0, 10.0, 100.0])
def test_error_of_the_softmax_maximum_is_within_its_bound(sharpness: float):
    sizes = 3, 2, 3, 40
    worst = 0.0
    for seed in range(3):
        played = Played(*sizes, seed=seed)
        construction = UcbVi(maximum="softmax", sharpness=sharpness, confidence=1e-4, temperature=1.0)
        gap = np.log(played.run(construction, 2)[-1]) - (q := played.induced(construction)[0])
        off = np.abs(gap - gap[..., :1]).max()  # differences of Q from that of the first action
        worst = max(worst, off)
        assert np.ptp(q) > 0.1
    bound = (sizes[0] - 1) * (sizes[2] - 1) / (math.e * sharpness)
    assert worst <= bound
    assert worst > bound / 100, "a bound that is never approached would test nothing"


def test_error_of_the_softmax_maximum_is_inverse_to_the_sharpness_for_the_worst_lead():
    """One of two last actions pays less by a gap. One of two first actions leads there, the other is worth 0."""
    worst, sharpnesses = [], np.array([10.0, 100.0, 1000.0])
    plays = [[1, 0, 1, 1, 0, 0, 1], [0, 1, 1, 1, 0, 0, 1], [0, 1, 1, 0, 1, 0, 1], [1, 0, 1, 0, 0, 0, 0]]
    for sharpness in sharpnesses:
        tokens = torch.tensor(plays, dtype=torch.float64).repeat(60, 1, 1)  # h, s, a, r, s'
        tokens[:, 2, 5] = -torch.linspace(0.5, 3, 60, dtype=torch.float64) / sharpness
        construction = UcbVi(
            horizon=2, maximum="softmax", sharpness=sharpness, confidence=0.0, temperature=1.0
        )
        policy = construction.net(Prompt(4, 7, 2))(tokens, 1)[-1, :, -1].numpy()
        worst.append((np.log(policy[:, 1]) - np.log(policy[:, 0])).max())
    assert np.allclose(np.array(worst) * sharpnesses, 0.2785, atol=1e-3)
    assert construction.limit is not None
    assert np.polyfit(np.log(sharpnesses), np.log(worst), 1)[0] == pytest.approx(
        -construction.limit.order, abs=0.1
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_example_shows_the_stated_order(seed: int):
    construction = UcbVi(maximum="softmax")
    assert construction.limit is not None
    errors = approach(construction, construction.limit, seed)
    assert order(construction.limit, errors).agrees(construction.limit)


@pytest.mark.parametrize(
    ("prompt", "condition"),
    [
        (Prompt(9, 11, 2), r"tokens \(h, s, a, r, s'\)"),
        (Prompt(9, 6, 2), r"tokens \(h, s, a, r, s'\)"),
        (Prompt(9, 9, 1), "at least two actions"),
    ],
)
def test_unsuitable_prompts_raise(prompt: Prompt, condition: str):
    with pytest.raises(ValueError, match=f"construction ucb_vi requires {condition}"):
        UcbVi().net(prompt)
