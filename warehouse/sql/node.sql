-- One row per tool that planners may know: the nodes of a graph version.
-- grain: (namespace, name); key = namespace/name.
-- A namespace with a catalogue has exactly the catalogue's tools that are not removed; one without
-- has the tools of its calls that did not fail. Deprecated ones are nodes that nobody offers.
-- needs: called_tool (namespace, name, num_succeeded).
create or replace temp table node as
with
catalogued as (
    select distinct namespace from tool_version
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
    from called_tool c
    where c.namespace not in (select namespace from catalogued)
        and (c.namespace, c.name) not in (select (namespace, name) from current_tool)
        and c.num_succeeded > 0
)
select namespace || '/' || name as key, *
from listed
order by key
