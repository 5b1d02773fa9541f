-- Rows of ``plan_row`` that are not kept yet.
create or replace temp view opening as
select *
from plan_row p
where not exists (
    select 1 from learning_interval i
    where i.until is null and p.trajectory_id = i.trajectory_id and p.digest = i.digest
        and p.draw = i.draw and p.request = i.request
)
