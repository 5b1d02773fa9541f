-- The edges that count differently now, with their counts; 0 where nothing is left.
create or replace temp table edge_after as
with
changed as (
    select source, target, kind, outcome, on_day, is_held_out, sum(num_seen)::bigint as num_seen
    from edge_change
    where source <> target
    group by all
    having sum(num_seen) <> 0
)
select
    c.* exclude (num_seen),
    c.num_seen + coalesce(e.num_seen, 0) as num_seen
from changed c
left join edge_interval e on e.until is null
    and e.source = c.source and e.target = c.target and e.kind = c.kind and e.outcome = c.outcome
    and e.on_day is not distinct from c.on_day and e.is_held_out = c.is_held_out
