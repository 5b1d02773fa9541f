-- Edges that nobody has seen and a model expects. They belong to what learning saw, and so to every
-- version with that learning graph; no version's id depends on them, and nothing is learnt of them.

-- One row per learning graph that has predictions: who made them, and how well such ones fared.
create table prediction (
    learning_id   varchar not null,
    fingerprint   varchar not null,      -- of the training, as in the registry
    model_version varchar not null,      -- number in the registry
    settings      varchar not null,      -- JSON: how many a tool, least probability
    metrics       varchar not null,      -- JSON: calibration, see models/predicted.py
    predicted_at  timestamp not null
);

-- One row per predicted edge. grain: (learning_id, source, target).
create table predicted_edge (
    learning_id   varchar not null,
    source        integer not null,      -- mined_tool
    target        integer not null,
    probability   double not null        -- that it is seen within as many further trajectories
);
