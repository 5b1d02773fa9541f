-- The days whose edges have changed: by counts, or because a tool came to the nodes or went.
create or replace temp table changed_day as
select distinct on_day from edge_after
union
select on_day
from edge_interval
where until is null and (
    source in (select tool from flipped) or target in (select tool from flipped)
)
