-- Traces of many formats: conversations, nested calls, attempts, exact clocks, events that come in
-- pieces, and what was asked to be forgotten.

alter table trajectory add column conversation varchar;      -- session or thread it is part of
alter table trajectory add column assembled_from varchar;    -- the fragments it was made of, else null
alter table trajectory add column flags varchar;             -- JSON list: what is odd about it
alter table trajectory add column orphans varchar;           -- JSON list: results without a call

alter table call add column parent integer;                  -- position of the call it ran inside
alter table call add column attempts integer;                -- how often it was executed
alter table call add column uid varchar;                     -- equal uids in a source are one execution
alter table call add column flags varchar;                   -- JSON list: what is odd about it
alter table call alter column started_at type timestamp_ns;
alter table call alter column ended_at type timestamp_ns;
update call set attempts = 1;

-- Arguments that came as values are kept without blanks between their parts.
update call set arguments_raw = json(arguments_raw)::varchar
where arguments_state in ('object', 'empty') and json_valid(arguments_raw)
    and trajectory_id in (select trajectory_id from trajectory where format <> 'openai');

-- What was delivered of conversations that are told in pieces: one row per conversation once its
-- trajectories are made, more while they are pending.
create table fragment (
    source          varchar not null,
    format          varchar not null,
    conversation    varchar not null,
    num_events      integer not null,
    events          varchar not null    -- JSON list of distinct events, sorted by their text
);

-- Other names of a conversation, such as the id of the response it goes on from: conversations with
-- a name in common are one.
create table fragment_alias (
    source          varchar not null,
    format          varchar not null,
    conversation    varchar not null,
    alias           varchar not null
);

-- Conversations whose stored events changed after their trajectories were made.
create table pending (
    source          varchar not null,
    format          varchar not null,
    conversation    varchar not null
);

-- How far an interrupted reading of a file came.
create table ingest_progress (
    file_sha256     varchar not null,
    source          varchar not null,
    reader_version  integer not null,
    at_byte         bigint not null,    -- of the unpacked content
    at_line         bigint not null,
    report          varchar not null    -- JSON: what was found up to here
);

-- What a user asked to forget: it does not come back with a later delivery.
create table forgotten (
    source          varchar not null,
    key             varchar not null,   -- sha256 of source and native id, or of the content
    forgotten_at    timestamp not null
);

-- A call with the tool it belongs to and its final status.
--   key:    the tool of the catalogue it names, directly or behind a client prefix
--           (server__tool, mcp__server__tool); else the source's own namespace.
--   status: a source that carries no result at all has unrecorded calls, not unanswered ones.
--   Executions that several conversations tell of (history copied into a resumed session) count
--   once, in the earliest of them.
create or replace view resolved_call as
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
),
copy as (
    select c.trajectory_id, c.position
    from call c
    join trajectory t using (trajectory_id)
    where c.uid is not null
    qualify row_number() over (
        partition by t.source, c.uid
        order by t.started_at nulls last, t.native_id, c.trajectory_id, c.position
    ) > 1
)
select
    c.trajectory_id,
    t.source,
    c.position,
    c.turn,
    c.parent,
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
left join prefixed p on p.call_namespace = c.namespace and p.call_name = c.name
where not exists (
    select 1 from copy d where d.trajectory_id = c.trajectory_id and d.position = c.position
);

-- The one table out: every execution with what is known of it, whatever format told it.
create view tool_call as
select
    t.source,
    t.format,
    t.conversation,
    c.trajectory_id,
    c.position,
    c.turn,
    c.parent,
    r.namespace || '/' || r.name as tool,
    c.name as name_sent,
    c.call_id,
    c.arguments_raw,
    -- parsed: what was encoded twice is unpacked
    case
        when c.arguments_state not in ('object', 'empty') or not json_valid(c.arguments_raw) then null
        when json_type(c.arguments_raw) = 'VARCHAR' then (c.arguments_raw ->> '$')::json
        else c.arguments_raw::json
    end as arguments,
    c.arguments_state,
    c.result,
    c.result_hash,
    c.result_size,
    r.status,
    c.error,
    c.attempts,
    c.started_at,
    c.ended_at,
    c.flags
from resolved_call r
join call c using (trajectory_id, position)
join trajectory t using (trajectory_id);
