-- Edges, as (source, target, kind), that count differently in two states, under the new names.
-- grain: (source, target, kind). parameters: $old, $new (states; no rows are of state -1).
-- needs: new_name (old_key, new_key: tools that were renamed from one to the other).
with
old_node as (
    select i.tool, coalesce(m.tool, i.tool) as named
    from node_interval i
    join mined_tool k on k.tool = i.tool
    left join new_name n on n.old_key = k.key
    left join mined_tool m on m.key = n.new_key
    where i.since <= $old and (i.until is null or i.until > $old)
),
new_node as (
    select tool
    from node_interval
    where since <= $new and (until is null or until > $new)
),
told as (
    select s.named as source, t.named as target, e.kind, e.num_seen as before, 0 as after
    from edge_interval e
    join old_node s on s.tool = e.source
    join old_node t on t.tool = e.target
    where e.since <= $old and (e.until is null or e.until > $old)
    union all
    select e.source, e.target, e.kind, 0, e.num_seen
    from edge_interval e
    where e.since <= $new and (e.until is null or e.until > $new)
        and e.source in (select tool from new_node) and e.target in (select tool from new_node)
),
changed as (
    -- By number: keys are dear to group by, and few edges change.
    select source, target, kind, sum(before)::bigint as before, sum(after)::bigint as after
    from told
    where source <> target
    group by source, target, kind
    having sum(before) <> sum(after)
)
select s.key as source, t.key as target, c.kind::varchar as kind, c.before, c.after
from changed c
join mined_tool s on s.tool = c.source
join mined_tool t on t.tool = c.target
order by source, target, c.kind::varchar
