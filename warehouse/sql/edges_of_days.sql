-- The present edges of the days that have changed, between tools that planners may know.
select e.on_day, s.key as source, t.key as target, e.kind::varchar as kind,
    e.outcome::varchar as outcome, e.is_held_out, e.num_seen
from edge_interval e
join changed_day d on d.on_day is not distinct from e.on_day
join mined_tool s on s.tool = e.source
join mined_tool t on t.tool = e.target
where e.until is null
    and e.source in (select tool from present_node) and e.target in (select tool from present_node)
order by e.on_day nulls first, s.key, t.key, kind, outcome, e.is_held_out
