-- One row per tool that planners may know: the nodes of a graph version.
-- grain: (namespace, name); key = namespace/name.
-- A namespace with a catalogue has exactly the catalogue's tools that are not removed; one without
-- has the tools of its calls that did not fail. Deprecated ones are nodes that nobody offers. Calls by status are over all trajectories that are
-- evidence (predicted ones are not).
create or replace temp table node as
with
catalogued as (
    select distinct namespace from tool_version
),
called as (
    select
        namespace,
        name,
        count(*) filter (where status = 'ok') as num_ok,
        count(*) filter (where status = 'unrecorded') as num_unrecorded,
        count(*) filter (where status not in ('ok', 'unrecorded')) as num_failed
    from resolved_call
    where links_kind <> 'predicted'
    group by namespace, name
),
listed as (
    select namespace, name, contract_hash, description, parameters, input_types, output_types, status
    from current_tool
    where status <> 'removed'
    union all
    select
        c.namespace,
        c.name,
        '',
        '',
        '[]',
        '[]',
        '[]',
        case
            when (c.namespace, c.name) in (select (namespace, name) from tool_mark)
                then 'deprecated'
            else 'active'
        end
    from called c
    where c.namespace not in (select namespace from catalogued)
        and (c.namespace, c.name) not in (select (namespace, name) from current_tool)
        and c.num_ok + c.num_unrecorded > 0
)
select
    l.namespace || '/' || l.name as key,
    l.namespace,
    l.name,
    l.contract_hash,
    l.description,
    l.parameters,
    l.input_types,
    l.output_types,
    l.status,
    coalesce(c.num_ok, 0)::bigint as num_ok,
    coalesce(c.num_unrecorded, 0)::bigint as num_unrecorded,
    coalesce(c.num_failed, 0)::bigint as num_failed
from listed l
left join called c using (namespace, name)
order by key
