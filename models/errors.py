"""What can go wrong in the numeric core.

ModelError
├── NotEnoughData       a training set, validation set or suite is too small to use
├── GraphMismatch       names, edges or features of two things that must fit do not
├── CheckpointMismatch  a stored planner is incomplete or does not fit its graph
├── MissingWeights      the weights of a text encoder or language model are not on this machine
├── PromptTooLong       a text is longer than the language model reads
├── UnusableLLM         a language model lacks what reading graph tokens needs
├── UnusableAnswer      a language model did not answer with what it was asked for
├── TrainingDiverged    a loss is no longer a number
├── LostProcess         a process of a training in several processes is gone
├── ProcessesDiffer     the processes of one training hold different data or weights
├── TooManyPairs        a type graph joins more pairs of tools than may be listed
├── InvalidPlan         a plan has a cycle, or names tools or steps that are not there
├── ToolFailed          a tool gave no result
├── MissingResource     a step lacks a value that nothing known can stand for
├── UnusableJournal     a journal of calls is in use, damaged, or belongs to another request
└── MissingMetric       a metric that a decision needs is absent or not a number
"""


class ModelError(Exception):
    """Base of every error of this package; catch it to catch them all."""


class NotEnoughData(ModelError):
    """A training set, validation set or suite is too small to use."""


class GraphMismatch(ModelError):
    """Names, edges or features of two things that must fit do not."""


class CheckpointMismatch(ModelError):
    """A stored planner is incomplete or does not fit its graph."""


class MissingWeights(ModelError):
    """The weights of a text encoder or language model are not on this machine."""


class MissingMetric(ModelError):
    """A metric that a decision needs is absent or not a number."""


class PromptTooLong(ModelError):
    """A text is longer than the language model reads."""


class UnusableLLM(ModelError):
    """A language model lacks what reading graph tokens needs."""


class UnusableAnswer(ModelError):
    """A language model did not answer with what it was asked for."""


class TrainingDiverged(ModelError):
    """A loss is no longer a number."""


class LostProcess(ModelError):
    """A process of a training in several processes is gone."""


class ProcessesDiffer(ModelError):
    """The processes of one training hold different data or weights."""


class TooManyPairs(ModelError):
    """A type graph joins more pairs of tools than may be listed."""


class InvalidPlan(ModelError):
    """A plan has a cycle, or names tools or steps that are not there."""


class ToolFailed(ModelError):
    """A call gave no result.

    Attributes:
        is_transient: The same call may succeed a little later.
        has_run: Whether the tool did its work all the same: False where it surely did not start,
            None where nobody knows (a time-out, a server that died).
        retry_after_s: How long the tool asks to wait, where it does.
        is_refusal: Somebody decided that it must not run: nobody goes around that by another plan.
    """

    def __init__(
        self,
        message: str,
        *,
        is_transient: bool = False,
        has_run: bool | None = None,
        retry_after_s: float | None = None,
        is_refusal: bool = False,
    ) -> None:
        super().__init__(message)
        self.is_transient = is_transient
        self.has_run = has_run
        self.retry_after_s = retry_after_s
        self.is_refusal = is_refusal


class MissingResource(ModelError):
    """A step lacks a value that nothing known can stand for."""


class UnusableJournal(ModelError):
    """A journal of calls is in use, damaged, or belongs to another request."""
