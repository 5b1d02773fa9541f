-- What comes in: files, tools, trajectories, their calls and dependencies, and what could not be used.
-- No primary keys on the big tables (trajectory, call, link): batches are staged and anti-joined.

-- One row per delivered file whose every record was stored or quarantined.
create table ingest_file (
    file_sha256     varchar not null,   -- of the bytes as delivered
    source          varchar not null,
    format          varchar not null,
    reader_version  integer not null,   -- a newer reader reads the file again
    counts          varchar not null,   -- JSON: what the first reading found
    ingested_at     timestamp not null  -- UTC
);

-- One row per tool contract ever delivered; the current one has the highest delivery.
create table tool_version (
    namespace       varchar not null,
    name            varchar not null,
    contract_hash   varchar not null,   -- of everything below down to output_types
    description     varchar not null,
    parameters      varchar not null,   -- JSON list of {name, type, description, required}
    input_types     varchar not null,   -- JSON list
    output_types    varchar not null,   -- JSON list
    status          varchar not null,   -- active | deprecated | removed
    delivery        bigint not null     -- grows with every ingest run or sync
);

create sequence delivery_number;

-- One row per trajectory.
create table trajectory (
    trajectory_id   varchar not null,   -- hash of source, native id and content
    source          varchar not null,
    native_id       varchar,            -- null where the format has none
    content_hash    varchar not null,
    richness        varchar not null,   -- JSON list of integers: how complete this form is
    request         varchar not null,
    split           varchar,            -- the source's own: train | validation | test
    links_kind      varchar not null,   -- gold | dataflow | adjacent | predicted | inferred | none
    started_at      timestamp,          -- UTC, null where the source has no clock
    format          varchar not null,
    num_calls       integer not null,
    meta            varchar not null    -- JSON object as delivered
);

-- One row per executed tool call.
create table call (
    trajectory_id   varchar not null,
    position        integer not null,   -- 0-based, order of execution
    turn            integer not null,   -- 0-based among the turns that have calls
    namespace       varchar not null,
    name            varchar not null,   -- as sent
    call_id         varchar,
    arguments_raw   varchar,            -- as sent, null where not recorded
    arguments_state varchar not null,   -- object | empty | invalid | unrecorded
    result          varchar,            -- cut at a limit; hash and size are of the whole
    result_hash     varchar,
    result_size     bigint,             -- characters
    status          varchar not null,   -- ok | error | incomplete | invalid | no_result
    error           varchar,
    started_at      timestamp,
    ended_at        timestamp
);

-- One row per dependency between two calls of a trajectory.
-- kind: gold, dataflow, adjacent, predicted, inferred as delivered; mined: found in the arguments.
create table link (
    trajectory_id   varchar not null,
    source_position integer not null,
    target_position integer not null,
    kind            varchar not null
);

-- One row per edge of a tool graph that a source ships. Never used for learning.
create table declared_edge (
    source          varchar not null,
    source_name     varchar not null,
    target_name     varchar not null,
    type            varchar not null
);

-- One row per record that could not be used.
create table quarantine (
    quarantine_id   varchar not null,   -- hash of source, file name, place, reason and raw text
    source          varchar not null,
    path            varchar not null,   -- as given
    place           varchar not null,   -- line or record
    format          varchar not null,
    reason          varchar not null,
    raw             varchar not null,
    created_at      timestamp not null
);

-- A call with the tool it belongs to and its final status.
--   key:    the tool of the catalogue it names, directly or behind a client prefix
--           (server__tool, mcp__server__tool); else the source's own namespace.
--   status: a source that carries no result at all has unrecorded calls, not unanswered ones.
create view resolved_call as
with
tool as (select distinct namespace, name from tool_version),
recording as (
    select t.source
    from call c
    join trajectory t using (trajectory_id)
    where c.status <> 'no_result' and c.status <> 'invalid'
    group by t.source
),
named as (
    select distinct namespace, name from call
),
spelt as (
    select namespace, name, namespace || '__' || name as spelling from tool
    union all
    select namespace, name, 'mcp__' || namespace || '__' || name from tool
),
prefixed as (
    select
        n.namespace as call_namespace,
        n.name as call_name,
        min(t.namespace) as namespace,
        min(t.name) as name
    from named n
    join spelt t on t.spelling = n.name
    where not exists (
        select 1 from tool own where own.namespace = n.namespace and own.name = n.name
    )
    group by n.namespace, n.name
    having count(*) = 1
)
select
    c.trajectory_id,
    t.source,
    c.position,
    c.turn,
    coalesce(p.namespace, c.namespace) as namespace,
    coalesce(p.name, c.name) as name,
    c.arguments_raw,
    c.arguments_state,
    case
        when c.status <> 'no_result' then c.status
        when r.source is null then 'unrecorded'
        else 'unanswered'
    end as status,
    t.started_at,
    t.links_kind
from call c
join trajectory t using (trajectory_id)
left join recording r on r.source = t.source
left join prefixed p on p.call_namespace = c.namespace and p.call_name = c.name;
