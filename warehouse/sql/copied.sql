-- Executions that several conversations tell of (history copied into a resumed session) count once,
-- in the earliest of them: here is one row per telling that does not count.
-- parameters: $after (only those that a later batch, or a touched trajectory, tells of).
create or replace temp table copied as
with
wanted as (
    select distinct namespace, uid
    from call
    where uid is not null
        and (batch > $after or trajectory_id in (select trajectory_id from touched))
)
select c.trajectory_id, c.position
from call c
join wanted using (namespace, uid)
join trajectory t using (trajectory_id)
qualify row_number() over (
    partition by t.source, c.uid
    order by t.started_at nulls last, t.native_id, c.trajectory_id, c.position
) > 1
