-- One row per tool pair, kind, outcome, day and side that the calls in question show, with counts.
-- grain: (source, target, kind, outcome, on_day, is_held_out).
-- parameters: $sign (1: counted, -1: taken off).
-- needs: the views call_of (t, position, turn, parent, tool, outcome; the calls of a trajectory stand
--   together in their order), link_of (t, source_position, target_position) and trajectory_of (t,
--   on_day, is_held_out).
-- kind: adjacent (each call of a turn to each call of the next turn that has calls), dataflow (the
--   target's arguments use the source's result). A tool called again at once is no edge: such rows,
--   with source = target, count calls whose turn before has the tool too.
-- outcome: after_failure where the source had failed; else failed where the target did, ok when both
--   are, and unrecorded when a result was not recorded. on_day: UTC, null without a clock.
-- is_held_out: of a test row; learning never sees it.
insert into edge_change
with
uneven as (
    select distinct t from call_of where turn <> position or parent is not null
),
followed as (
    -- Without a partition the rows stream through, at a tenth of the cost.
    select
        t,
        turn,
        tool,
        outcome,
        lag(t) over () as source_t,
        lag(turn) over () as source_turn,
        lag(tool) over () as source,
        lag(outcome) over () as source_outcome
    from call_of
),
met as (
    select
        s.t,
        s.tool as source,
        d.tool as target,
        d.position,
        s.outcome as source_outcome,
        d.outcome as target_outcome
    from call_of s
    join call_of d on d.t = s.t and d.turn = s.turn + 1 and d.parent is not distinct from s.parent
    where s.t in (select t from uneven)
),
pair as (
    select
        'adjacent'::edge_kind as kind, t, source, tool as target, source_outcome,
        outcome as target_outcome
    from followed
    anti join uneven using (t)
    where source_t = t and source_turn = turn - 1
    union all
    select 'adjacent', t, source, target, source_outcome, target_outcome
    from met
    where source <> target
    union all
    select 'adjacent', t, source, target, max(source_outcome), any_value(target_outcome)
    from met
    where source = target
    group by t, source, target, position
    union all
    select 'dataflow', s.t, s.tool, d.tool, s.outcome, d.outcome
    from link_of l
    join call_of s on s.t = l.t and s.position = l.source_position
    join call_of d on d.t = l.t and d.position = l.target_position
    where s.tool <> d.tool
)
select
    p.source,
    p.target,
    p.kind,
    case
        when p.source_outcome = 'failed' then 'after_failure'
        when p.target_outcome = 'failed' then 'failed'
        when p.source_outcome = 'ok' and p.target_outcome = 'ok' then 'ok'
        else 'unrecorded'
    end::edge_outcome as outcome,
    r.on_day,
    r.is_held_out,
    $sign * count(*)::bigint as num_seen
from pair p
join trajectory_of r using (t)
group by all
