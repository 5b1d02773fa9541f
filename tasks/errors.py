"""What can go wrong between the cores and the outside world.

TaskError
├── ChatFailed       an endpoint of a language model gave no answer
├── NoChampion       planning was asked of a champion that does not exist
├── NoReadout        gtool-llm was asked of a version that was trained without it
├── SourceFailed     a server or address that lists tools did not, or not reliably
├── ServiceError     a service did not start, or a run on one did not end well
├── ToolRefused      a tool of the toolbox cannot do what it was asked
├── UnknownModel     no registered model version of that number
├── UnknownPlanner   no planner of that name
└── WrongUsage       an argument that no command could take
"""


class TaskError(Exception):
    """Base of every error of this package; catch it to catch them all."""


class ChatFailed(TaskError):
    """An endpoint of a language model gave no answer."""


class NoChampion(TaskError):
    """Planning was asked of a champion that does not exist."""


class NoReadout(TaskError):
    """``gtool-llm`` was asked of a version that was trained without it."""


class ServiceError(TaskError):
    """A service did not start, or a run on one did not end well."""


class SourceFailed(TaskError):
    """A server or address that lists tools did not, or not reliably."""


class ToolRefused(TaskError):
    """A tool of the toolbox cannot do what it was asked."""


class UnknownModel(TaskError):
    """No registered model version of that number."""


class UnknownPlanner(TaskError):
    """No planner of that name."""


class WrongUsage(TaskError):
    """An argument that no command could take."""
