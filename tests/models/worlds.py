"""Small random worlds: tools, requests that name some of them, and the graph of their plans."""

import random
import zlib
from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch.nn.functional import normalize

from models.candidates import embed_requests
from models.types import Example, ToolGraph, empty_edges

NAMES = ("apple", "bread", "cheese", "dates", "eggs", "figs", "grape", "honey", "icing", "juice")
CHANNELS = 6


def embed(texts):
    """A text is the mean direction of its words, each drawn once and for all."""
    vectors = []
    for text in texts:
        drawn = torch.Generator().manual_seed(zlib.crc32(text.encode()))
        vector = 0.2 * torch.randn(CHANNELS, generator=drawn)
        for word in text.replace("/", " ").replace(".", " ").split():
            drawn = torch.Generator().manual_seed(zlib.crc32(word.encode()))
            vector = vector + torch.randn(CHANNELS, generator=drawn)
        vectors.append(vector)
    return normalize(torch.stack(vectors) if vectors else torch.zeros(0, CHANNELS), dim=1)


def vectors_of(rows):
    """Text vectors of the requests of examples."""
    return embed_requests([row.request for row in rows], embed)


def mine(keys, rows):
    """The graph of these rows, mined the slow and obvious way; a text is the tool's name."""
    place = {key: i for i, key in enumerate(keys)}
    adjacent = Counter(
        (place[a], place[b]) for row in rows for a, b in pairwise(row.tools) if a != b
    )
    flows = Counter(
        (place[row.tools[a]], place[row.tools[b]])
        for row in rows
        for a, b in row.links
        if row.tools[a] != row.tools[b]
    )
    index, counts = empty_edges()
    if pairs := sorted(set(adjacent) | set(flows)):
        index = torch.tensor(pairs).T.contiguous()
        counts = torch.tensor([[float(adjacent[p]), float(flows[p])] for p in pairs])
    return ToolGraph("v", tuple(keys), tuple(key.split("/")[1] for key in keys), index, counts)


@dataclass(frozen=True)
class World:
    """Rows of some groups over some tools."""

    keys: tuple
    rows: tuple

    @property
    def graph(self):
        return mine(self.keys, self.rows)

    def without(self, groups):
        """The same world had it never met these groups."""
        return replace(self, rows=tuple(row for row in self.rows if row.group not in groups))

    def changed(self, groups, seed):
        """The same world with other plans in these groups."""
        draw = random.Random(seed)
        return replace(
            self,
            rows=tuple(
                replace(row, **_plan(draw, self.keys, len(row.tools)))
                if row.group in groups
                else row
                for row in self.rows
            ),
        )


def _plan(draw, keys, longest):
    tools = tuple(draw.choice(keys) for _ in range(draw.randint(1, longest)))
    pairs = [(a, b) for b in range(len(tools)) for a in range(b)]
    return {"tools": tools, "links": tuple(sorted(draw.sample(pairs, len(pairs) // 2)))}


def world(seed=0, num_tools=6, num_rows=18, num_groups=6, num_validation=3, longest=5):
    """Requests name most tools of their plans, a clause each, and some other one."""
    draw = random.Random(seed)
    keys = tuple(f"s/{name}" for name in NAMES[:num_tools])
    rows = []
    for i in range(num_rows + num_validation):
        plan = _plan(draw, keys, longest)
        words = [key.split("/")[1] for key in plan["tools"] if draw.random() < 0.7]
        request = ". Then ".join([f"{draw.choice(NAMES)} please", *words])
        split = "train" if i < num_rows else "validation"
        rows.append(
            Example(str(i), request, **plan, split=split, group=f"{split} {i % num_groups}")
        )
    return World(keys, tuple(rows))
