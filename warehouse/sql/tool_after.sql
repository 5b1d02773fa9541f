-- The tools whose calls count differently now, with their counts. Rows of edge_change with
-- source = target count calls of a tool that was called just before too: repeats, and retries where
-- that had failed.
create or replace temp table tool_after as
with
change as (
    from tool_change
    union all
    select
        source, 0, 0, 0,
        case when kind = 'adjacent' then num_seen else 0 end,
        case when outcome = 'after_failure' then num_seen else 0 end
    from edge_change
    where source = target
),
changed as (
    select
        tool,
        sum(num_ok)::bigint as num_ok,
        sum(num_unrecorded)::bigint as num_unrecorded,
        sum(num_failed)::bigint as num_failed,
        sum(num_repeats)::bigint as num_repeats,
        sum(num_retries)::bigint as num_retries
    from change
    group by tool
    having sum(num_ok) <> 0 or sum(num_unrecorded) <> 0 or sum(num_failed) <> 0
        or sum(num_repeats) <> 0 or sum(num_retries) <> 0
)
select
    c.tool,
    c.num_ok + coalesce(n.num_ok, 0) as num_ok,
    c.num_unrecorded + coalesce(n.num_unrecorded, 0) as num_unrecorded,
    c.num_failed + coalesce(n.num_failed, 0) as num_failed,
    c.num_repeats + coalesce(n.num_repeats, 0) as num_repeats,
    c.num_retries + coalesce(n.num_retries, 0) as num_retries
from changed c
left join node_count_interval n on n.tool = c.tool and n.until is null
