"""Small catalogues with types of their own: nodes of a graph version, and search graphs."""

import json

import polars as pl

from models.search_graph import search_graph


def tool(name, takes=(), returns=(), *, description="", status="active", namespace="t"):
    """A node; ``takes`` are "name:type", "name:type?" where optional, "... # what it is"."""
    parameters = []
    for entry in takes:
        plain, _, said = entry.partition(" # ")
        told, _, kind = plain.partition(":")
        parameters.append(
            {
                "name": told,
                "type": kind.removesuffix("?"),
                "description": said,
                "required": not kind.endswith("?"),
            }
        )
    return {
        "key": f"{namespace}/{name}",
        "namespace": namespace,
        "name": name,
        "description": description,
        "parameters": json.dumps(parameters),
        "input_types": "[]",
        "output_types": json.dumps(list(returns)),
        "status": status,
    }


def frame(*tools):
    """Nodes of a version."""
    return pl.DataFrame(list(tools), schema=dict.fromkeys(tool("a"), pl.String))


def typed(*lines, **options):
    """The search graph of lines such as "cut: image mask -> image"; a number is added to names."""
    return search_graph(frame(*(_line(line) for line in lines)), **options)


def _line(line):
    name, _, rest = line.partition(":")
    takes, _, returns = rest.partition("->")
    return tool(name, [f"p{i}:{t}" for i, t in enumerate(takes.split())], returns.split())


def names(graph, tools):
    """Names of tools by number."""
    return [graph.keys[tool].split("/", 1)[1] for tool in tools]


def term(graph, steps):
    """What a solution does, whatever the order of its steps: (tool, inputs), nested."""
    terms = []
    for step in steps:
        inputs = tuple(
            terms[-1 - source] if source is not None and source < 0 else source
            for source in step.sources
        )
        terms.append((graph.keys[step.tool], inputs))
    return terms[-1]


def subterms(whole):
    """A term and all that it is made of, each once."""
    found = {whole}
    for part in whole[1]:
        if isinstance(part, tuple):
            found |= subterms(part)
    return found


def parts_of(whole):
    """A term and all that it is made of, as often as it is used."""
    return [whole, *(p for part in whole[1] if isinstance(part, tuple) for p in parts_of(part))]


def all_terms(graph, resources, targets, max_tools, num_args, groups=()):
    """Every solution there is, by trying everything."""

    def ways(nodes, above, is_end=False):
        if not is_end:
            yield from (r for r, has in enumerate(resources) if has & nodes)
        for tool in range(len(graph.keys)):
            if tool in above or len(above) == max_tools or not graph.given(tool) & nodes:
                continue
            yield from made(tool, (*above, tool), ())

    def made(tool, above, chosen):
        if len(chosen) == len(graph.needs[tool]):
            yield graph.keys[tool], chosen
            return
        need = graph.needs[tool][len(chosen)]
        for way in ways(need.nodes, above):
            yield from made(tool, above, (*chosen, way))

    for found in ways(targets, (), is_end=True):
        steps = subterms(found)
        used = {part for step in steps for part in step[1] if isinstance(part, int)}
        tools = {graph.index[step[0]] for step in steps}
        if (
            len(steps) <= max_tools
            and used.issuperset(range(num_args))
            and all(len(tools & set(group)) <= 1 for group in groups)
        ):
            yield found


def price(graph, prices, parts, num_args, spare_cost):
    """What the parts of a term cost, each of them, where all that joins them are types."""
    return sum(
        prices[graph.index[tool]]
        + spare_cost * sum(isinstance(i, int) and i >= num_args for i in inputs)
        for tool, inputs in parts
    )
