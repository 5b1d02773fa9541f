-- One row per tool pair, kind, outcome, day and side: the edges of a graph version with their counts.
-- grain: (source, target, kind, outcome, on_day, is_held_out).
-- kind: adjacent (each call of a turn to each call of the next turn that has calls), dataflow (the
--   target's arguments use the source's result). A tool called again at once is no edge.
-- outcome: ok when both calls are, unrecorded when neither failed but a result was not recorded,
--   else failed. on_day: UTC, null where the source has no clock.
-- is_held_out: of a test row; learning never sees it.
create or replace temp table edge as
with
call as (
    select
        r.trajectory_id,
        r.position,
        r.turn,
        r.parent,
        r.namespace || '/' || r.name as key,
        r.status,
        r.started_at::date as on_day
    from resolved_call r
    where r.links_kind <> 'predicted'
        and r.namespace || '/' || r.name in (select key from node)
),
pair as (
    select
        'adjacent' as kind, s.trajectory_id, s.key as source, t.key as target,
        s.status as source_status, t.status as target_status, s.on_day
    from call s
    join call t on t.trajectory_id = s.trajectory_id and t.turn = s.turn + 1
        and t.parent is not distinct from s.parent
    where s.key <> t.key
    union all
    select
        'dataflow', s.trajectory_id, s.key, t.key, s.status, t.status, s.on_day
    from (
        select distinct trajectory_id, source_position, target_position
        from link
        where kind in ('mined', 'dataflow')
    ) l
    join call s on s.trajectory_id = l.trajectory_id and s.position = l.source_position
    join call t on t.trajectory_id = l.trajectory_id and t.position = l.target_position
    where s.key <> t.key
)
select
    p.source,
    p.target,
    p.kind,
    case
        when p.source_status = 'ok' and p.target_status = 'ok' then 'ok'
        when p.source_status in ('ok', 'unrecorded') and p.target_status in ('ok', 'unrecorded')
            then 'unrecorded'
        else 'failed'
    end as outcome,
    p.on_day,
    coalesce(r.split = 'test', false) as is_held_out,
    count(*)::bigint as num_seen
from pair p
left join learning_row r using (trajectory_id)
group by all
order by p.source, p.target, p.kind, outcome, p.on_day nulls first, is_held_out
