-- One row per source of trajectories, with what a split of it can go by.
-- grain: source.
-- has_test: the source itself holds trajectories back; num_times: different times that they began at.
select
    source,
    bool_or(coalesce(split = 'test', false)) as has_test,
    count(distinct started_at) as num_times,
    count(*) filter (split is null) as num_undivided,
    count(*) filter (started_at is null) as num_untimed
from trajectory
where links_kind <> 'predicted' and num_calls > 0
group by source
order by source
