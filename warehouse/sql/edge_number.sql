-- How many edges the present state has, as (source, target, kind), and how many learning sees.
select
    count(*),
    count(*) filter (is_learning)
from (
    select
        bool_or(
            kind in ('adjacent', 'dataflow') and not is_held_out and outcome in ('ok', 'unrecorded')
        ) as is_learning
    from edge_interval
    where until is null
        and source in (select tool from node_interval where until is null)
        and target in (select tool from node_interval where until is null)
    group by source, target, kind
)
