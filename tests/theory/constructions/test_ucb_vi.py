"""Soft UCB-VI, held against sweeps over all stages and against backward induction."""

import math

import numpy as np
import pytest
import torch
from scipy.special import softmax

from loopscale.core.prompt import Prompt
from loopscale.theory.constructions.base import blocks
from loopscale.theory.constructions.ucb_vi import UcbVi

SIZES = [(1, 2, 2, 3), (3, 3, 2, 30), (4, 2, 3, 30), (3, 2, 5, 40), (2, 2, 9, 30)]


class Played:
    """Episodes of random play in a random problem, and a stage and state at which to ask."""

    def __init__(self, stages: int, states: int, actions: int, episodes: int, seed: int = 0) -> None:
        rng = np.random.default_rng([seed, stages, states, actions])
        self.sizes = stages, states, actions
        leads = rng.dirichlet(np.ones(states) / 2, (stages, states, actions))
        pays = rng.random((stages, states, actions))
        self.log = []
        for _ in range(episodes):
            s = rng.integers(states)
            for h in range(stages):
                a = int(rng.integers(actions) * rng.random())  # so that some cells are seldom or never played
                after = rng.choice(states, p=leads[h, s, a])
                self.log.append((h, s, a, float(rng.random() < pays[h, s, a]), after))
                s = after
        self.asked = int(rng.integers(stages)), int(rng.integers(states))

    @property
    def prompt(self) -> Prompt:
        h, s, a = self.sizes
        return Prompt(len(self.log) + 1, h + 2 * s + a + 1, a)

    @property
    def tokens(self) -> np.ndarray:
        hs, ss, as_ = (np.eye(size) for size in self.sizes)
        asked = [hs[self.asked[0]], ss[self.asked[1]], 0 * as_[0], [0.0], 0 * ss[0]]
        return np.stack(
            [np.concatenate([hs[h], ss[s], as_[a], [r], ss[n]]) for h, s, a, r, n in self.log]
            + [np.concatenate(asked)]
        )

    def model(self, made: UcbVi) -> tuple[np.ndarray, np.ndarray]:
        """r + bonus and P, of every cell."""
        stages, states, _ = self.sizes
        visits, sums = np.zeros(self.sizes), np.zeros(self.sizes)
        counts = np.zeros((*self.sizes, states))
        for h, s, a, r, after in self.log:
            visits[h, s, a] += 1
            sums[h, s, a] += r
            counts[h, s, a, after] += 1
        m = np.maximum(1, visits)
        return sums / m + 2 * stages * np.sqrt(made.confidence / m), counts / m[..., None]

    def values(self, made: UcbVi, sweeps: int) -> np.ndarray:
        """Q after so many sweeps of V over all stages at once."""
        base, p = self.model(made)
        v = np.zeros((self.sizes[0] + 1, self.sizes[1]))
        for _ in range(sweeps):
            v[:-1] = self._backed_up(base, p, v).max(-1)
        return self._backed_up(base, p, v)

    def _backed_up(self, base: np.ndarray, p: np.ndarray, v: np.ndarray) -> np.ndarray:
        return np.minimum(base + np.einsum("hsan,hn->hsa", p, v[1:]), self.sizes[0])

    def induced(self, made: UcbVi) -> np.ndarray:
        """Q by induction from the last stage."""
        base, p = self.model(made)
        v, found = np.zeros(self.sizes[1]), []
        for h in reversed(range(self.sizes[0])):
            q = np.minimum(base[h] + p[h] @ v, self.sizes[0])
            found.append(q)
            v = q.max(-1)
        return np.stack(found[::-1])


def run(made: UcbVi, played: Played, steps: int) -> np.ndarray:
    """The policy at every stage and state, after every step: [steps, H, S, A]."""
    net, (stages, states, actions) = made.net(played.prompt), played.sizes
    asks = [(h, s) for h in range(stages) for s in range(states)]
    prompts = []
    for played.asked in asks:
        prompts.append(played.tokens)
    found = net(torch.from_numpy(np.stack(prompts)), steps)[:, :, -1]
    return found.numpy().reshape(steps, stages, states, actions)


@pytest.mark.parametrize("maximum", ["tournament", "softmax"])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_steps_are_sweeps_and_one_less_than_the_stages_is_induction(maximum: str, sizes: tuple[int, ...]):
    made = UcbVi.model_validate({"maximum": maximum, "horizon": sizes[0], "confidence": 0.03})
    played, sweeps = Played(*sizes), sizes[0] + 1
    found = run(made, played, sweeps)
    for t in range(1, sweeps + 1):
        assert np.abs(found[t - 1] - softmax(played.values(made, t) / made.temperature, -1)).max() < 1e-11
    best = softmax(played.induced(made) / made.temperature, -1)
    for late in found[max(sizes[0] - 1, 1) - 1 :]:
        assert np.abs(late - best).max() < 1e-11
    assert sizes[0] < 3 or np.abs(found[0] - best).max() > 1e-3, "more than one sweep should be needed"


@pytest.mark.parametrize("confidence", [0.0, 0.25, 1.0])
def test_cells_never_played_are_as_good_as_can_be_where_the_bonus_is_large(confidence: float):
    played = Played(3, 3, 4, 8)
    made = UcbVi(confidence=confidence, temperature=1.0)
    q, found = played.induced(made), run(made, played, 2)[-1]
    assert np.abs(found - softmax(q, -1)).max() < 1e-11
    visited = np.zeros(played.sizes, bool)
    for h, s, a, *_ in played.log:
        visited[h, s, a] = True
    assert not visited.all()
    assert (q[~visited] == (0 if confidence == 0 else 3)).all()


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_layers_are_as_many_as_stated(sizes: tuple[int, ...]):
    played, (stages, _, actions, _) = Played(*sizes), sizes
    levels = math.ceil(math.log2(actions))
    for maximum, cell in (("tournament", 1 + levels), ("softmax", 2)):
        net = UcbVi.model_validate({"maximum": maximum, "horizon": stages}).net(played.prompt)
        within = len(net.loop.stack.blocks)
        assert within == cell
        assert len(blocks(net)) - within + (stages - 1) * within == 4 + (stages - 1) * cell
    assert 4 + (stages - 1) * cell == 2 * stages + 2 <= 2 * stages + 8


@pytest.mark.parametrize("sharpness", [1.0, 10.0, 100.0])
def test_the_maximum_by_softmax_is_off_by_no_more_than_its_bound(sharpness: float):
    sizes = 3, 2, 3, 40
    worst = 0.0
    for seed in range(3):
        played = Played(*sizes, seed=seed)
        made = UcbVi(maximum="softmax", sharpness=sharpness, confidence=1e-4, temperature=1.0)
        gap = np.log(run(made, played, 2)[-1]) - (q := played.induced(made))
        off = np.abs(gap - gap[..., :1]).max()  # of Q, to that of the first action
        worst = max(worst, off)
        assert np.ptp(q) > 0.1
    bound = (sizes[0] - 1) * (sizes[2] - 1) / (math.e * sharpness)
    assert worst <= bound
    assert worst > bound / 100, "a bound that is never approached tests nothing"


def test_the_maximum_by_softmax_is_off_by_the_inverse_of_its_sharpness_where_the_lead_is_worst():
    """Of two last actions one is behind by a gap; of two first ones, one leads there, and one is worth 0."""
    played, worst, sharpnesses = Played(2, 1, 2, 0), [], np.array([10.0, 100.0, 1000.0])
    for sharpness in sharpnesses:
        prompts = []
        for gap in np.linspace(0.5, 3, 60) / sharpness:
            played.log, played.asked = [(0, 0, 0, 0.0, 0), (1, 0, 0, 0.0, 0), (1, 0, 1, -gap, 0)], (0, 0)
            prompts.append(played.tokens)
        made = UcbVi(horizon=2, maximum="softmax", sharpness=sharpness, confidence=0.0, temperature=1.0)
        policy = made.net(played.prompt)(torch.from_numpy(np.stack(prompts)), 1)[-1, :, -1].numpy()
        worst.append((np.log(policy[:, 1]) - np.log(policy[:, 0])).max())
    assert np.allclose(np.array(worst) * sharpnesses, 0.2785, atol=1e-3)
    assert np.polyfit(np.log(sharpnesses), np.log(worst), 1)[0] == pytest.approx(-(made.order or 0), abs=0.1)


@pytest.mark.parametrize(
    ("prompt", "condition"),
    [
        (Prompt(9, 11, 2), r"tokens \(h, s, a, r, s'\)"),
        (Prompt(9, 6, 2), r"tokens \(h, s, a, r, s'\)"),
        (Prompt(9, 9, 1), "two actions or more"),
    ],
)
def test_what_does_not_fit_is_refused(prompt: Prompt, condition: str):
    with pytest.raises(ValueError, match=f"construction ucb_vi is for {condition}"):
        UcbVi().net(prompt)
