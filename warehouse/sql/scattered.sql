-- A row where the calls of some trajectory do not stand together in their order.
-- needs: the view call_of.
with
followed as (
    select t, position, lag(t) over () as t_before, lag(position) over () as position_before
    from call_of
)
select 1
from followed
having count(*) filter (t_before is distinct from t) <> count(distinct t)
    or count(*) filter (t_before = t and position_before >= position) > 0
