-- What is made of it: graph versions, suites, reports, and who was champion when.
-- Small tables; the bulk of a graph version lies in immutable Parquet files beside the warehouse.

-- One row per content-addressed graph version.
create table graph_version (
    version      varchar primary key,   -- sha256 of nodes, edges, counts and parameters
    learning_id  varchar not null,      -- the same of the view without held-out rows
    parameters   varchar not null,      -- JSON
    mark         varchar not null,      -- JSON: what data it was built from
    num_nodes    integer not null,
    num_edges    integer not null,
    num_learning_edges integer not null
);

-- One row per build that changed the graph or the training rows; the last row is the latest.
create table graph_build (
    build        integer primary key,
    version      varchar not null,
    parent       varchar,
    examples_id  varchar not null,      -- training rows of the same state, a Parquet file of that name
    code_version varchar not null,
    built_at     timestamp not null
);

-- One row per frozen set of requests.
create table suite (
    name        varchar not null,       -- <source>/test or <source>/by-sequence
    version     integer not null,
    source      varchar not null,
    content_id  varchar not null,       -- hash of its rows
    num_rows    integer not null,
    created_at  timestamp not null,
    primary key (name, version)
);

-- One row per request of a suite, with its gold plan as it was when frozen.
create table suite_row (
    name          varchar not null,
    version       integer not null,
    trajectory_id varchar not null,
    request       varchar not null,
    tools         varchar not null,     -- JSON list of tool keys
    links         varchar not null,     -- JSON list of [source position, target position]
    has_links     boolean not null
);

-- One row per regression report.
create table report (
    report_id   varchar primary key,    -- hash of what was compared
    created_at  timestamp not null,
    body        varchar not null        -- JSON
);

-- One row per change of an alias, made by us or noticed in the registry.
create table alias_history (
    changed_at  timestamp not null,
    alias       varchar not null,
    version     varchar,
    previous    varchar,
    changed_by  varchar not null,
    reason      varchar not null
);
