-- What the rows of ``pair_of`` add to the edges, or take off them.
-- grain: (source, target, kind, outcome, on_day, is_held_out).
-- parameters: $sign (1: counted, -1: taken off).
-- needs: pair_of, and the view trajectory_of (t, on_day, is_held_out).
-- outcome: after_failure where the source had failed; else failed where the target did, ok when both
--   are, and unrecorded when a result was not recorded. on_day: UTC, null without a clock.
-- is_held_out: of a test row; learning never sees it.
insert into edge_change
select
    p.source,
    p.target,
    p.kind,
    edge_outcome_of(p.source_outcome, p.target_outcome) as outcome,
    r.on_day,
    r.is_held_out,
    $sign * count(*)::bigint as num_seen
from pair_of p
join trajectory_of r using (t)
group by all
