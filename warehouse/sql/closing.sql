-- Present learning rows of gone trajectories that are not so any more.
-- needs: gone, plan_row. A draw changes with the seed; a request is gone from a forgotten row.
create or replace temp table closing as
select trajectory_id, digest
from learning_interval i
where until is null
    and trajectory_id in (select trajectory_id from gone)
    and not exists (
        select 1 from plan_row p
        where p.trajectory_id = i.trajectory_id and p.digest = i.digest and p.draw = i.draw
            and p.request = i.request
    )
