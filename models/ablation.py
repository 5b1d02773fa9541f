"""Parts of GTool that a training can leave out: the rows of the paper's ablation table."""

from enum import StrEnum


class Ablation(StrEnum):
    """What is left out (GTool, section 5.5)."""

    FULL = "full"
    NO_REQUEST_NODE = "no_request_node"  # the mean of the tool states stands for the request
    NO_MDPL = "no_mdpl"  # no missing-dependency prediction
    NO_REQUEST_NODE_NO_MDPL = "no_request_node_no_mdpl"
    NO_GRAPH = "no_graph"  # names and instruction only
    LLM_LINKS = "llm_links"  # what the LLM takes for missing dependencies joins the graph

    @property
    def request_node(self) -> bool:
        """Whether requests have a node of their own."""
        return self not in (Ablation.NO_REQUEST_NODE, Ablation.NO_REQUEST_NODE_NO_MDPL)

    @property
    def mdpl(self) -> bool:
        """Whether missing dependencies are predicted in training."""
        return self not in (Ablation.NO_MDPL, Ablation.NO_REQUEST_NODE_NO_MDPL)
