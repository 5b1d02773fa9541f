-- The edges that a model expects of a learning graph, between the nodes of a state.
-- grain: (source, target). parameters: $learning_id, $state.
with
node as (
    select tool, key
    from node_interval
    join mined_tool using (tool)
    where since <= $state and (until is null or until > $state)
)
select s.key as source, t.key as target, e.probability
from predicted_edge e
join node s on s.tool = e.source
join node t on t.tool = e.target
where e.learning_id = $learning_id
order by source, target
