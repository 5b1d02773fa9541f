-- A row where the calls do not stand in the order of trajectories and positions.
-- needs: the view call_of.
select 1
from (
    select t, position, lag(t) over () as t_before, lag(position) over () as position_before
    from call_of
)
where t < t_before or (t = t_before and position <= position_before)
limit 1
