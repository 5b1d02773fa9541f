-- The tool graphs that sources ship, as changes of the edges: kind declared, outcome stated.
-- Both ends are tools of the catalogues, under their present names.
insert into edge_change
with
named as (
    select k.tool, n.namespace, n.name
    from present_node n0
    join mined_tool k using (tool)
    join (
        select namespace, name, namespace as target_namespace, name as target_name from mined_tool
        union
        select namespace, name, target_namespace, target_name from tool_rename
    ) n on n.target_namespace = k.namespace and n.target_name = k.name
),
wanted as (
    select s.tool as source, t.tool as target, count(*)::bigint as num_seen
    from declared_edge e
    join named s on s.namespace = e.source and s.name = e.source_name
    join named t on t.namespace = e.source and t.name = e.target_name
    where s.tool <> t.tool
    group by all
)
select source, target, 'declared', 'stated', null, false, num_seen from wanted
union all
select source, target, kind, outcome, on_day, is_held_out, -num_seen
from edge_interval
where until is null and kind = 'declared'
