"""How well tools suit a subtask, on the paper's scale: 1 unrelated, 3 probably, 5 closely related.

The paper asks an LLM for each tool (arXiv 2310.17796, 3.2.2 and table 7). Text similarity and a
trained planner give the same scale without one.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from models.clauses import clauses
from models.lexicon import Lexicon
from models.solving import Suits
from models.subtasks import Subtask
from models.thoughts_on_graph import Scores
from models.types import Embedder, Planner

LOW, HIGH = 1.0, 5.0


class TextScorer:
    """Scores by the likeness of texts: of the description or any of its clauses, and by words.

    A tool's likeness is the best cosine of its text with the description or one of its clauses,
    raised by shared rare words and by its own name. Within one subtask, the likest tool of the
    catalogue gets 5, and one of average likeness 2.

    Args:
        keys: Of the tools.
        texts: What is read of each, as :attr:`models.types.ToolGraph.texts`.
        embed: Text encoder; the tools are encoded once, here.
        words_weight: Of shared words against cosines.
    """

    def __init__(
        self,
        keys: Sequence[str],
        texts: Sequence[str],
        embed: Embedder,
        words_weight: float = 0.5,
    ) -> None:
        self._embed = embed
        self._tools = embed(list(texts)).numpy()
        names = [key.split("/", 1)[1] for key in keys]
        self._lexicon = Lexicon(list(texts), names)
        self._words_weight = words_weight

    def __call__(self, subtasks: Sequence[Subtask]) -> list[Suits]:
        """How every tool suits each subtask, and each clause of its description."""
        pieces = [_pieces(subtask.description) for subtask in subtasks]
        flat = [piece for each in pieces for piece in each]
        if not flat:
            return []
        cosine = self._embed(flat).numpy() @ self._tools.T
        said = self._lexicon(flat)
        words = (said.likeness + said.named).numpy() / 2
        raw = cosine + self._words_weight * words
        found, start = [], 0
        for each in pieces:
            rows = raw[start : start + len(each)]
            start += len(each)
            parts = rows[1:] if len(each) > 1 else rows
            found.append(Suits(spread(rows.max(axis=0)), np.stack([spread(p) for p in parts])))
        return found


def _pieces(description: str) -> list[str]:
    """The description, and its clauses where there are several."""
    parts = clauses(description)
    return [description, *parts] if len(parts) > 1 else [description]


class PlannerScorer:
    """Scores by what a trained planner would call: 1 for never, up to 5 for surely.

    A tool's probability is the share of the planner's ranked plans that hold it, each plan weighted
    by the softmax of its score.

    Args:
        planner: Such as GTool; its scores are log-probabilities.
        keys: Tools of the search graph.
        top: Plans that it is asked for.
    """

    def __init__(self, planner: Planner, keys: Sequence[str], top: int = 12) -> None:
        self._planner = planner
        self._place = {key: i for i, key in enumerate(keys)}
        self._top = top

    def __call__(self, subtasks: Sequence[Subtask]) -> list[Suits]:
        """How every tool suits each subtask."""
        found = []
        for ranked in self._planner.plan([s.description for s in subtasks], self._top):
            scores = np.full(len(self._place), LOW)
            if ranked:
                weights = np.exp([plan.score - ranked[0].score for plan in ranked])
                for plan, weight in zip(ranked, weights / weights.sum(), strict=True):
                    for key in set(plan.tools) & self._place.keys():
                        scores[self._place[key]] += (HIGH - LOW) * float(weight)
            scores = np.clip(scores, LOW, HIGH)
            found.append(Suits(scores, scores[None, :]))
        return found


def spread(likeness: NDArray[np.floating]) -> Scores:
    """Likeness of all tools as scores: the best 5, the average 2, nothing below 1."""
    if not len(likeness):
        return np.zeros(0)
    middle = float(np.mean(likeness))
    best = float(np.max(likeness))
    if best - middle < 1e-9:
        return np.full(len(likeness), (LOW + HIGH) / 2)
    scores = 2.0 + 3.0 * (likeness - middle) / (best - middle)
    return np.asarray(np.clip(scores, LOW, HIGH), dtype=np.float64)


def mixed(suits: Sequence[Sequence[Suits]], weights: Sequence[float]) -> list[Suits]:
    """Weighted means of several scorers' answers, subtask by subtask.

    Raises:
        ValueError: There are not as many weights as scorers, one is negative, or all are 0.
    """
    if len(suits) != len(weights) or min(weights, default=0.0) < 0 or sum(weights) <= 0:
        raise ValueError(
            f"expected a weight of at least 0 for each of {len(suits)} scorers, and not 0 for all, "
            f"got {list(weights)}."
        )
    shares = [weight / sum(weights) for weight in weights]
    return [
        Suits(
            np.asarray(sum(w * one.tools for w, one in zip(shares, each, strict=True))),
            np.asarray(sum(w * one.pieces for w, one in zip(shares, each, strict=True))),
        )
        for each in zip(*suits, strict=True)
    ]
