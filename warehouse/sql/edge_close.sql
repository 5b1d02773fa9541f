-- Present edges that count differently now: valid up to this state.
update edge_interval e set until = $state
from edge_after c
where e.until is null
    and c.source = e.source and c.target = e.target and c.kind = e.kind and c.outcome = e.outcome
    and c.on_day is not distinct from e.on_day and c.is_held_out = e.is_held_out
