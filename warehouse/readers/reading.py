"""Items to records without a store: for catalogues, for tests, and to see what a file says."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from warehouse.linking import Key, groups_of
from warehouse.readers.carriers import iter_items
from warehouse.readers.registry import Shape, conversation_of, shape_of, shape_of_whole
from warehouse.readers.stream import Item, open_bytes
from warehouse.records import Fragment, Gathered, Record, Rejected


def read_file(path: Path, format: str = "auto") -> list[tuple[str, Record]]:
    """(format, record) of everything in a file, fragments already made into trajectories."""
    with open_bytes(path) as file:
        return list(read_items(iter_items(file), format))


def read_items(items: Iterable[Item], format: str = "auto") -> Iterator[tuple[str, Record]]:
    """(format, record) of each item: gathered where a kind wants it, fragments assembled last."""
    gathered: dict[tuple[int, str | None], tuple[Shape, list[Item]]] = {}
    fragments: dict[Key, list[dict[str, object]]] = {}
    names: list[tuple[Key, str]] = []
    shapes: dict[str, Shape] = {}

    def records(shape: Shape, item: Item) -> Iterator[tuple[str, Record]]:
        for record in shape.read(item):
            if isinstance(record, Fragment):
                shapes[shape.format] = shape
                key = (shape.format, record.conversation)
                fragments.setdefault(key, []).extend(record.events)
                names.extend((key, name) for name in record.aliases)
            else:
                yield shape.format, record

    for item in items:
        shape = shape_of(item.value, format) if item.error is None else None
        if shape is None:
            reason = item.error or "no reader knows a record of this shape"
            yield format, Rejected(item.place, reason, item.raw)
        elif shape.gathered:
            key = (id(shape), conversation_of(item.value))
            gathered.setdefault(key, (shape, []))[1].append(item)
        else:
            yield from records(shape, item)
    for (_, conversation), (shape, parts) in gathered.items():
        whole = gather(conversation, parts)
        named = shape_of_whole(shape, whole.value.values, format)
        for name, record in records(shape, whole):
            yield named.format if name == shape.format else name, record
    for (name, conversation), group in groups_of(fragments, names).items():
        assemble = shapes[name].assemble
        assert assemble is not None
        events = [event for key in group for event in fragments[key]]
        for record in assemble(conversation, events):
            yield name, record


def gather(conversation: str | None, parts: list[Item]) -> Item:
    """The items of one conversation as one."""
    text = "\n".join(part.raw for part in parts)
    return Item(parts[0].place, text, Gathered(conversation, [part.value for part in parts]))
