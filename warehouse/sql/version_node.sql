-- The nodes of a state. grain: key. parameters: $state.
select
    k.key,
    k.namespace,
    k.name,
    n.contract_hash,
    c.description,
    c.parameters,
    c.input_types,
    c.output_types,
    n.status,
    coalesce(u.num_ok, 0) as num_ok,
    coalesce(u.num_unrecorded, 0) as num_unrecorded,
    coalesce(u.num_failed, 0) as num_failed,
    coalesce(u.num_repeats, 0) as num_repeats,
    coalesce(u.num_retries, 0) as num_retries
from node_interval n
join mined_tool k using (tool)
join contract c using (contract_hash)
left join node_count_interval u on u.tool = n.tool
    and u.since <= $state and (u.until is null or u.until > $state)
where n.since <= $state and (n.until is null or n.until > $state)
order by k.key
