-- One row per trajectory that shows a plan, as it was in one state of the graph.
-- grain: trajectory_id.
-- parameters: $state.
-- is_plannable is false without a request, and where a tool is outside the catalogue or deprecated:
-- no planner could offer it.
create or replace temp table learning_row as
with
present as (
    select * from learning_interval where since <= $state and (until is null or until > $state)
),
offered as (
    select k.key
    from node_interval n
    join mined_tool k using (tool)
    where n.since <= $state and (n.until is null or n.until > $state) and n.status = 'active'
),
hindered as (
    select distinct trajectory_id
    from (select trajectory_id, unnest(tools) as key from present)
    where key not in (select key from offered)
)
select
    trajectory_id,
    source,
    request,
    tools,
    links,
    has_links,
    own_split is not null as has_own_split,
    request <> '' and trajectory_id not in (select trajectory_id from hindered) as is_plannable,
    split,
    split_group
from present
order by trajectory_id
