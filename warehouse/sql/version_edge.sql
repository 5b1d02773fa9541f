-- The edges of a state, between its nodes.
-- grain: (source, target, kind, outcome, on_day, is_held_out).
-- parameters: $state, $among (keys of tools; null: all).
with
node as (
    select tool, key
    from node_interval
    join mined_tool using (tool)
    where since <= $state and (until is null or until > $state)
        and ($among is null or list_contains($among, key))
)
select
    s.key as source,
    t.key as target,
    e.kind::varchar as kind,
    e.outcome::varchar as outcome,
    e.on_day,
    e.is_held_out,
    e.num_seen
from edge_interval e
join node s on s.tool = e.source
join node t on t.tool = e.target
where e.since <= $state and (e.until is null or e.until > $state)
order by source, target, kind, outcome, e.on_day nulls first, e.is_held_out
