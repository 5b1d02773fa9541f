-- Each telling of one edge in the present data.
-- parameters: $source, $target (tool numbers).
with
met as (
    select 'adjacent' as kind, s.t, s.position as source_position, d.position as target_position,
        s.outcome as source_outcome, d.outcome as target_outcome
    from mined_call s
    join mined_call d on d.t = s.t and d.turn = s.turn + 1 and d.parent is not distinct from s.parent
    where s.tool = $source and d.tool = $target
    union all
    select 'dataflow', s.t, s.position, d.position, s.outcome, d.outcome
    from mined_call s
    join mined_link l on l.t = s.t and l.source_position = s.position
    join mined_call d on d.t = l.t and d.position = l.target_position
    where s.tool = $source and d.tool = $target
)
select
    m.kind,
    edge_outcome_of(m.source_outcome, m.target_outcome) as outcome,
    r.on_day,
    r.is_held_out,
    r.trajectory_id,
    j.source,
    j.native_id,
    j.request,
    m.source_position,
    m.target_position
from met m
join mined_trajectory r using (t)
join trajectory j using (trajectory_id)
order by r.on_day desc nulls last, r.trajectory_id, m.kind, m.source_position, m.target_position
