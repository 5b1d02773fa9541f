-- One row per telling of an edge by the calls in question.
-- needs: the views call_of (t, position, turn, parent, tool, outcome; in the order of t and position)
--   and link_of (t, source_position, target_position).
-- kind: adjacent (each call of a turn to each call of the next turn that has calls), dataflow (the
--   target's arguments use the source's result). A tool called again at once is no edge: such rows,
--   with source = target, stand for calls whose turn before has the tool too.
create or replace temp table pair_of as
with
uneven as (
    select distinct t from call_of where turn <> position or parent is not null
),
followed as (
    -- Without a partition the rows stream through, at a fraction of the cost.
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
)
select
    t, 'adjacent'::edge_kind as kind, source, tool as target, source_outcome,
    outcome as target_outcome
from followed
anti join uneven using (t)
where source_t = t and source_turn = turn - 1
union all
select t, 'adjacent', source, target, source_outcome, target_outcome
from met
where source <> target
union all
select t, 'adjacent', source, target, max(source_outcome), any_value(target_outcome)
from met
where source = target
group by t, source, target, position
union all
select s.t, 'dataflow', s.tool, d.tool, s.outcome, d.outcome
from link_of l
join call_of s on s.t = l.t and s.position = l.source_position
join call_of d on d.t = l.t and d.position = l.target_position
where s.tool <> d.tool
