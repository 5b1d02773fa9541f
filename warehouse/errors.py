"""What can go wrong in the warehouse.

WarehouseError
├── WarehouseLocked    another process holds the DuckDB file
├── WrongStorage       the file is no DuckDB file, or one of another release
├── UnreadableInput    a path, file or format that ingest cannot read
├── UnknownVersion     no graph version of that name
├── UnknownSuite       no suite of that name
├── NoSplit            no source that a split could divide
├── UnknownTool        no tool of that name, or several
├── WrongRename        a rename or deprecation that cannot be
├── UnsafeSync         a catalogue would lose more tools than a source can be trusted with
└── NothingToBuild     there is no data to build a graph or a suite from
"""


class WarehouseError(Exception):
    """Base of every error of this package; catch it to catch them all."""


class WarehouseLocked(WarehouseError):
    """Another process holds the DuckDB file."""


class WrongStorage(WarehouseError):
    """The file is no DuckDB file, or one of another DuckDB release."""


class UnreadableInput(WarehouseError):
    """A path, file or format that ingest cannot read."""


class UnknownVersion(WarehouseError):
    """No graph version of that name."""


class UnknownSuite(WarehouseError):
    """No suite of that name."""


class NothingToBuild(WarehouseError):
    """There is no data to build a graph or a suite from."""


class NoSplit(WarehouseError):
    """No source that a split could divide."""


class UnknownTool(WarehouseError):
    """No tool of that name, or several."""


class WrongRename(WarehouseError):
    """A rename or deprecation that cannot be."""


class UnsafeSync(WarehouseError):
    """A catalogue would lose more tools than a source can be trusted with."""
