-- What is known of tools beyond their contracts: when a catalogue changed, who was renamed, what was
-- taken out of use by hand, and which tool a name in a trace means.

-- One row per change of a namespace's catalogue.
create table catalogue_delivery (
    namespace       varchar not null,
    delivery        bigint not null,    -- as in tool_version
    delivered_at    timestamp not null, -- UTC
    source          varchar             -- what it was synced from; null for an ingest
);

-- One row per rename: the old name stands for the target, through any number of renames.
create table tool_alias (
    namespace           varchar not null,   -- of the old name
    name                varchar not null,   -- the old name
    target_namespace    varchar not null,
    target_name         varchar not null,
    kind                varchar not null,   -- rename | merge: both were tools of the catalogue
                                            -- | undone: a name that a rename left in models
    renamed_at          timestamp not null
);

-- One row per tool that was deprecated by hand, which later deliveries do not undo.
create table tool_mark (
    namespace       varchar not null,
    name            varchar not null,
    marked_at       timestamp not null
);

-- The last target of every old name. Renames in a circle are refused when they are made.
create view tool_rename as
with recursive step as (
    select namespace, name, target_namespace, target_name, 1 as depth
    from tool_alias
    union all
    select s.namespace, s.name, a.target_namespace, a.target_name, s.depth + 1
    from step s
    join tool_alias a on a.namespace = s.target_namespace and a.name = s.target_name
    where s.depth < 1000
)
select namespace, name, target_namespace, target_name
from step
qualify row_number() over (partition by namespace, name order by depth desc) = 1;

-- One row per tool of the catalogues as it is now, under its last name.
-- grain: (namespace, name). A tool whose source still lists the old name keeps that contract.
create view current_tool as
with
latest as (
    select *
    from tool_version
    qualify row_number() over (
        partition by namespace, name
        order by delivery desc, parameters <> '[]' desc, contract_hash desc
    ) = 1
),
renamed as (
    select
        l.* replace (
            coalesce(r.target_namespace, l.namespace) as namespace,
            coalesce(r.target_name, l.name) as name
        ),
        r.name is not null as is_old_name
    from latest l
    left join tool_rename r using (namespace, name)
),
chosen as (
    select *
    from renamed
    qualify row_number() over (
        partition by namespace, name
        order by status = 'removed', is_old_name, delivery desc, parameters <> '[]' desc,
            contract_hash desc
    ) = 1
)
select
    c.* exclude (is_old_name, status),
    case
        when c.status <> 'removed' and m.name is not null then 'deprecated' else c.status
    end as status
from chosen c
left join (
    select distinct
        coalesce(r.target_namespace, k.namespace) as namespace,
        coalesce(r.target_name, k.name) as name
    from tool_mark k
    left join tool_rename r using (namespace, name)
) m using (namespace, name);

-- One row per name that calls use and no tool of their own namespace has, and what it can mean.
-- grain: (call_namespace, call_name). num_fitting > 1: ambiguous, the name stays as it is.
--   Clients write server__tool, mcp__server__tool, server.tool, server/tool, server:tool, and some
--   server_tool, which counts only where nothing else fits. Letters that APIs refuse in names
--   become "_".
create view client_name as
with
tool as (
    select namespace, name from tool_version
    union
    select namespace, name from tool_alias
),
named as (
    select distinct namespace, name from call
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
    from named n
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

-- A call with the tool it belongs to and its final status.
--   key:    the tool of the catalogue it names, directly, behind a client prefix or by a former
--           name; else the source's own namespace.
--   status: a source that carries no result at all has unrecorded calls, not unanswered ones.
--   Executions that several conversations tell of (history copied into a resumed session) count
--   once, in the earliest of them.
create or replace view resolved_call as
with
recording as (
    select t.source
    from call c
    join trajectory t using (trajectory_id)
    where c.status <> 'no_result' and c.status <> 'invalid'
    group by t.source
),
meant as (
    select call_namespace, call_name, namespace, name from client_name where num_fitting = 1
    union all
    select namespace, name, target_namespace, target_name from tool_rename
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
    coalesce(m.namespace, c.namespace) as namespace,
    coalesce(m.name, c.name) as name,
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
left join meant m on m.call_namespace = c.namespace and m.call_name = c.name
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
