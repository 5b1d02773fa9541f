-- What identifies the nodes of a state: contracts by hash, and calls. parameters: $state.
select
    k.key,
    n.contract_hash,
    n.status,
    coalesce(u.num_ok, 0) as num_ok,
    coalesce(u.num_unrecorded, 0) as num_unrecorded,
    coalesce(u.num_failed, 0) as num_failed,
    coalesce(u.num_repeats, 0) as num_repeats,
    coalesce(u.num_retries, 0) as num_retries
from node_interval n
join mined_tool k using (tool)
left join node_count_interval u on u.tool = n.tool
    and u.since <= $state and (u.until is null or u.until > $state)
where n.since <= $state and (n.until is null or n.until > $state)
order by k.key
