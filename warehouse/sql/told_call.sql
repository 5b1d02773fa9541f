-- One row per execution of the trajectories in scope, with its tool and outcome, in order.
-- grain: (t, position).
-- parameters: $after (calls up to this number are not looked at).
-- needs: scope, present_name.
-- outcome: unrecorded where the source carries no result at all; what was left unanswered, was
--   invalid or gave an error has failed.
create or replace temp table told_call as
select
    c.number as t,
    c.position,
    c.turn,
    c.parent,
    n.tool,
    case
        when c.status = 'ok' then 'ok'::call_outcome
        when c.status = 'no_result' and not n.is_recording then 'unrecorded'::call_outcome
        else 'failed'::call_outcome
    end as outcome,
    case when c.arguments_raw is not null then hash(c.arguments_raw) end as arguments
from call c
semi join scope s on s.t = c.number
join present_name n on n.namespace = c.namespace and n.name = c.name
where c.number > $after
order by c.number, c.position
