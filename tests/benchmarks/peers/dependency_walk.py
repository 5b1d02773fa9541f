"""BM25 with a walk over declared dependencies, after Graph RAG-Tool Fusion (arXiv 2502.07223)."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from models.baselines import best_first
from models.types import Plan, ToolGraph

_WORD = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def words(text: str) -> list[str]:
    """Lower-case words; camel and snake case are taken apart."""
    return _WORD.findall(_CAMEL.sub(" ", text).lower())


class BM25:
    r"""Okapi BM25 in Lucene's form, over a fixed list of texts.

    .. math::
        \sum_{w \in q} \log\Bigl(1 + \frac{N - n_w + .5}{n_w + .5}\Bigr)
        \frac{f_w}{f_w + k_1 (1 - b + b\,|d| / \overline{|d|})}

    Args:
        texts: What is searched.
        k1: How soon a repeated word counts no more. (default: 1.5)
        b: How much long texts are held back, 0 to 1. (default: 0.75)
    """

    def __init__(self, texts: Sequence[str], k1: float = 1.5, b: float = 0.75) -> None:
        counts = [Counter(words(text)) for text in texts]
        self._column = {w: i for i, w in enumerate(sorted(set().union(*counts)))}
        length = np.array([sum(count.values()) for count in counts], dtype=float)
        limit = k1 * (1 - b + b * length / max(length.mean(), 1.0))
        found = Counter(word for count in counts for word in count)
        entries = [
            (row, self._column[word], times / (times + limit[row]) * _idf(len(texts), found[word]))
            for row, count in enumerate(counts)
            for word, times in count.items()
        ]
        rows, columns, weights = zip(*entries, strict=True) if entries else ((), (), ())
        shape = (len(texts), len(self._column))
        self._weights = csr_array((np.float32(weights), (rows, columns)), shape=shape)

    def scores(self, query: str) -> npt.NDArray[np.float32]:
        """The score of each text, 0 where it shares no word."""
        counts = Counter(w for w in words(query) if w in self._column)
        asked = np.zeros(len(self._column), dtype=np.float32)
        asked[[self._column[word] for word in counts]] = list(counts.values())
        return self._weights @ asked


def _idf(total: int, found: int) -> float:
    return float(np.log1p((total - found + 0.5) / (found + 0.5)))


class BM25Walk:
    """The tools that BM25 finds, each with everything it is declared to depend on.

    A plan is one found tool behind its prerequisites, in the order of a depth-first walk; its
    links are the declared dependencies that run forward. Score: of the found tool, at least 0.
    Without declared dependencies it is plain BM25.

    Args:
        graph: Its texts are searched.
        declared: (prerequisite, dependent) keys; others than the graph's are ignored.
    """

    def __init__(self, graph: ToolGraph, declared: Sequence[tuple[str, str]] = ()) -> None:
        self.name = "bm25-walk" if declared else "bm25"
        self.keys = graph.keys
        self._index = BM25(graph.texts)
        self._needs: defaultdict[int, list[int]] = defaultdict(list)
        for source, target in dict.fromkeys(declared):
            if source != target and {source, target} <= graph.index.keys():
                self._needs[graph.index[target]].append(graph.index[source])

    def retrieve(self, requests: Sequence[str], k: int) -> list[list[str]]:
        """At most ``k`` tools for each request: a found one, what it needs, the next one."""
        return [self._retrieve(request, k) for request in requests]

    def _retrieve(self, request: str, k: int) -> list[str]:
        taken: dict[int, None] = {}
        for hit, _ in self._hits(request, k):
            taken.update(dict.fromkeys(self._walk(hit)[0]))
            if len(taken) >= k:
                break
        return [self.keys[row] for row in taken][:k]

    def plan(self, requests: Sequence[str], top: int = 1) -> list[list[Plan]]:
        """Ranked plans for each request, best first, at most ``top``."""
        return [list(self._plans(request, top)) for request in requests]

    def _plans(self, request: str, top: int) -> Iterator[Plan]:
        made: set[frozenset[int]] = set()
        for hit, score in self._hits(request, len(self.keys)):
            if len(made) >= top:
                return
            _, rows = self._walk(hit)
            if frozenset(rows) in made:
                continue
            made.add(frozenset(rows))
            place = {row: i for i, row in enumerate(rows)}
            links = sorted(
                (place[row], place[needed])
                for needed in rows
                for row in self._needs.get(needed, ())
                if place[row] < place[needed]
            )
            yield Plan(tuple(self.keys[row] for row in rows), tuple(links), score, self.name)

    def _hits(self, request: str, most: int) -> Iterator[tuple[int, float]]:
        scores = self._index.scores(request)
        for row in best_first(scores[None], most)[0] if most else []:
            yield row, float(scores[row])

    def _walk(self, hit: int) -> tuple[list[int], list[int]]:
        """The tool and all that it needs: as met depth first, and as left, prerequisites first."""
        met = {hit: None}
        left = []
        stack = [(hit, iter(self._needs.get(hit, ())))]
        while stack:
            row, rest = stack[-1]
            following = next((need for need in rest if need not in met), None)
            if following is None:
                left.append(row)
                stack.pop()
            else:
                met[following] = None
                stack.append((following, iter(self._needs.get(following, ()))))
        return list(met), left
