-- Executions that several conversations tell of (history copied into a resumed session) count once,
-- in the earliest of them: here is one row per telling that does not count.
-- parameters: $after (only those that a later, or a touched, trajectory tells of).
create or replace temp table copied as
with
wanted as (
    select distinct namespace, uid
    from call
    where uid is not null and (number > $after or number in (select t from touched))
)
select c.number as t, c.position
from call c
join wanted using (namespace, uid)
join trajectory j using (number)
qualify row_number() over (
    partition by j.source, c.uid
    order by j.started_at nulls last, j.native_id, c.trajectory_id, c.position
) > 1
