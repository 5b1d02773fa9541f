-- One row per trajectory that is mined now. Predicted trajectories are no evidence.
-- grain: t.
-- parameters: $after (trajectories up to this number are mined already), $newest (later ones wait).
-- needs: touched (those of them that count differently now).
create or replace temp table scope as
select
    number as t,
    started_at::date as on_day,
    links_kind in ('gold', 'dataflow') as has_links
from trajectory
where links_kind <> 'predicted' and number <= $newest
    and (number > $after or number in (select t from touched))
