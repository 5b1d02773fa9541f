-- Present edges that count differently now and that no earlier state has.
delete from edge_interval e
using edge_after c
where e.until is null and e.since = $state
    and c.source = e.source and c.target = e.target and c.kind = e.kind and c.outcome = e.outcome
    and c.on_day is not distinct from e.on_day and c.is_held_out = e.is_held_out
