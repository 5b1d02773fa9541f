-- The tool graph and its history. What the trajectories say is mined once and kept, so that a build
-- costs what has changed since the last one; every state of the graph is kept as the time its rows
-- were valid, so that a version costs its difference and not its size.

-- --- what has changed since the last mining ---

-- Every trajectory has a number of its own, and so have its calls and links; later ones are greater.
create sequence trajectory_number;

alter table trajectory add column number bigint;
update trajectory set number = nextval('trajectory_number');
alter table call add column number bigint;
update call set number = t.number from trajectory t where t.trajectory_id = call.trajectory_id;
alter table link add column number bigint;
update link set number = t.number from trajectory t where t.trajectory_id = link.trajectory_id;

-- Trajectories that were removed, or whose calls count differently because others came or went.
create table disturbed (
    t               bigint not null     -- number
);

-- Trajectories that a fuller or corrected form replaced: what is kept of past states, and suites, may
-- still hold their text.
create table former_trajectory (
    trajectory_id   varchar not null,
    source          varchar not null,
    native_id       varchar,
    format          varchar not null,
    assembled_from  varchar
);

-- Every name that calls have used.
create table called_name (
    namespace       varchar not null,
    name            varchar not null
);
insert into called_name select distinct namespace, name from call;

-- --- what the trajectories said when they were last mined ---

create type call_outcome as enum ('ok', 'unrecorded', 'failed');
create type edge_kind as enum ('adjacent', 'dataflow', 'declared', 'predicted');
create type edge_outcome as enum ('ok', 'unrecorded', 'failed', 'after_failure', 'stated');

-- What two calls, one after the other, tell of an edge between their tools.
create macro edge_outcome_of(source_outcome, target_outcome) as
    case
        when source_outcome = 'failed' then 'after_failure'::edge_outcome
        when target_outcome = 'failed' then 'failed'::edge_outcome
        when source_outcome = 'ok' and target_outcome = 'ok' then 'ok'::edge_outcome
        else 'unrecorded'::edge_outcome
    end;

-- One row: how far mining has come, and by which rules.
create table mined_state (
    number          bigint not null,    -- trajectories up to this number are mined
    settings        varchar not null,   -- JSON: rules, seed, shares
    frozen          varchar not null,   -- what the suites have frozen, as a hash
    state           integer not null,   -- the state of the graph that these rows are of
    rows_sum        varchar not null    -- JSON list: sums of the digests of the learning rows
);

-- One row per tool key ever seen. Numbers are never used twice: history refers to them.
create table mined_tool (
    tool            integer primary key,
    key             varchar not null unique,
    namespace       varchar not null,
    name            varchar not null
);

-- What each name in calls means, and whether its source records results.
create table mined_name (
    namespace       varchar not null,
    name            varchar not null,
    tool            integer not null,
    is_recording    boolean not null
);

-- One row per trajectory that is evidence (predicted ones are not).
create table mined_trajectory (
    t               bigint not null,    -- number
    trajectory_id   varchar not null,
    source          varchar not null,
    on_day          date,               -- UTC, null where the source has no clock
    is_held_out     boolean not null
);

-- One row per execution that counts.
create table mined_call (
    t               bigint not null,
    position        integer not null,
    turn            integer not null,
    parent          integer,
    tool            integer not null,
    outcome         call_outcome not null
);

-- One row per dependency that the arguments show.
create table mined_link (
    t               bigint not null,
    source_position integer not null,
    target_position integer not null
);

-- Hashes of the present edges, a day at a time.
create table edge_day (
    on_day          date,
    content         varchar not null,
    learning        varchar not null    -- without what learning may not see
);

-- --- the states of the graph ---
-- Valid from state `since` on and before state `until`; until is null while it is so.

create table contract (
    contract_hash   varchar not null,
    description     varchar not null,
    parameters      varchar not null,
    input_types     varchar not null,
    output_types    varchar not null
);

create table node_interval (
    tool            integer not null,
    contract_hash   varchar not null,
    status          varchar not null,
    since           integer not null,
    until           integer
);

-- Of all tools that calls name, those outside the catalogue included.
create table node_count_interval (
    tool            integer not null,
    num_ok          bigint not null,
    num_unrecorded  bigint not null,
    num_failed      bigint not null,
    num_repeats     bigint not null,
    num_retries     bigint not null,
    since           integer not null,
    until           integer
);

-- Between all tools that calls name: a version takes those between its nodes.
create table edge_interval (
    source          integer not null,
    target          integer not null,
    kind            edge_kind not null,
    outcome         edge_outcome not null,
    on_day          date,
    is_held_out     boolean not null,
    num_seen        bigint not null,
    since           integer not null,
    until           integer
);

-- The plans of trajectories, as training and suites see them.
create table learning_interval (
    trajectory_id   varchar not null,
    source          varchar not null,
    request         varchar not null,
    tools           varchar[] not null,
    links           integer[][] not null,
    has_links       boolean not null,
    own_split       varchar,
    draw            double not null,    -- in [0, 1), by seed and tools alone
    split           varchar not null,
    digest          varchar not null,   -- sha256 of what training sees of it
    since           integer not null,
    until           integer
);

-- --- versions ---
-- Versions of before lie in files that name no tool by number: they are built anew.

drop table graph_build;
drop table graph_version;

-- One row per content-addressed graph version.
create table graph_version (
    version      varchar primary key,   -- sha256 of nodes, edges, counts and parameters
    learning_id  varchar not null,      -- the same of what learning may see
    parameters   varchar not null,      -- JSON
    num_nodes    integer not null,
    num_edges    integer not null,
    num_learning_edges integer not null
);

-- One row per build that changed the graph or the training rows.
create table graph_build (
    build        integer primary key,
    version      varchar not null,
    parent       varchar,               -- the version of the build before
    state        integer not null,      -- where its rows are
    examples_id  varchar not null,      -- of the training rows of the same state
    mark         varchar not null,      -- JSON: what data it was built from
    code_version varchar not null,
    built_at     timestamp not null
);

-- One row per change of what is the latest version; the last row says what is. Where that is a
-- rollback, later builds do not become the latest until it is released.
create table graph_latest (
    number       integer primary key,
    build        integer not null,
    cause        varchar not null,      -- build | rollback | release
    moved_at     timestamp not null
);

-- One row per name that calls use and no tool of their own namespace has, and what it can mean; as
-- in migration 4, over the names instead of the calls.
create or replace view client_name as
with
tool as (
    select namespace, name from tool_version
    union
    select namespace, name from tool_alias
),
spelt as (
    select namespace, name, unnest([
        namespace || '__' || name,
        'mcp__' || namespace || '__' || name,
        namespace || '.' || name,
        namespace || '/' || name,
        namespace || ':' || name
    ]) as spelling, false as is_weak
    from tool
    union all
    select namespace, name, unnest([
        clean || '__' || clean_name,
        'mcp__' || clean || '__' || clean_name
    ]), false
    from (
        select
            *,
            regexp_replace(namespace, '[^A-Za-z0-9_-]', '_', 'g') as clean,
            regexp_replace(name, '[^A-Za-z0-9_-]', '_', 'g') as clean_name
        from tool
    )
    where clean <> namespace or clean_name <> name
    union all
    select namespace, name, namespace || '_' || name, true
    from tool
),
fitting as (
    select distinct
        n.namespace as call_namespace,
        n.name as call_name,
        s.is_weak,
        coalesce(r.target_namespace, s.namespace) as namespace,
        coalesce(r.target_name, s.name) as name
    from called_name n
    join spelt s on s.spelling = n.name
    left join tool_rename r on r.namespace = s.namespace and r.name = s.name
    where not exists (
        select 1 from tool own where own.namespace = n.namespace and own.name = n.name
    )
),
strongest as (
    select *
    from fitting
    qualify not is_weak or bool_and(is_weak) over (partition by call_namespace, call_name)
)
select
    call_namespace,
    call_name,
    count(*) as num_fitting,
    min(namespace) as namespace,
    min(name) as name,
    list(namespace || '/' || name order by namespace, name) as fitting
from strongest
group by call_namespace, call_name;
