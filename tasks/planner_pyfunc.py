"""The registered model as MLflow loads it: requests in, ranked plans out. No pickle anywhere.

MLflow runs this file to build the model ("models from code"); weights, graph and configuration
come from the artifact folder, the code from the copy of ``models/`` logged beside it.
"""

import json
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
from mlflow.models import set_model


class PlannerModel(mlflow.pyfunc.PythonModel):  # type: ignore[misc]
    """A GTool planner behind MLflow's pyfunc interface."""

    def load_context(self, context: Any) -> None:
        """Load the planner and the text encoder that its configuration names."""
        from models.checkpoint import load_planner, read_extra
        from models.text import SentenceEmbedder

        folder = Path(context.artifacts["planner"])
        self._planner = load_planner(folder, SentenceEmbedder(read_extra(folder)["text_encoder"]))

    def predict(
        self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        """One row a request: ``plans`` is a JSON list as ``toolatlas plan --json`` has it."""
        del context
        requests = [str(text) for text in model_input["request"]]
        ranked = self._planner.plan(requests, top=int((params or {}).get("top", 1)))
        return pd.DataFrame(
            {"plans": [json.dumps([plan.to_json() for plan in plans]) for plans in ranked]}
        )


set_model(PlannerModel())
