-- One row per trajectory that is mined now, under a number of its own.
-- grain: trajectory_id. Predicted trajectories are no evidence.
-- parameters: $first (numbers begin after it), $after (batches up to it are mined already).
-- needs: touched (trajectories of mined batches that count differently now).
create or replace temp table scope as
select
    ($first + row_number() over ())::integer as t,
    j.trajectory_id,
    j.source,
    j.started_at::date as on_day,
    j.request,
    j.split as own_split,
    j.links_kind
from trajectory j
where j.links_kind <> 'predicted'
    and (j.batch > $after or j.trajectory_id in (select trajectory_id from touched))
