-- Edges, as (source, target, kind), that count differently in two states, under the new names.
-- grain: (source, target, kind). parameters: $old, $new (states; no rows are of state -1).
-- needs: new_name (old_key, new_key: tools that were renamed from one to the other).
with
old_node as (
    select tool, coalesce(n.new_key, k.key) as key
    from node_interval i
    join mined_tool k using (tool)
    left join new_name n on n.old_key = k.key
    where i.since <= $old and (i.until is null or i.until > $old)
),
new_node as (
    select tool, key
    from node_interval
    join mined_tool using (tool)
    where since <= $new and (until is null or until > $new)
),
told as (
    select s.key as source, t.key as target, e.kind, e.num_seen as before, 0 as after
    from edge_interval e
    join old_node s on s.tool = e.source
    join old_node t on t.tool = e.target
    where e.since <= $old and (e.until is null or e.until > $old)
    union all
    select s.key, t.key, e.kind, 0, e.num_seen
    from edge_interval e
    join new_node s on s.tool = e.source
    join new_node t on t.tool = e.target
    where e.since <= $new and (e.until is null or e.until > $new)
)
select source, target, kind::varchar as kind, sum(before)::bigint, sum(after)::bigint
from told
where source <> target
group by source, target, kind
having sum(before) <> sum(after)
order by source, target, kind
