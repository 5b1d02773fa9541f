-- The rows of ``learning_row`` that training may see.
-- grain: id.
select
    trajectory_id as id,
    source,
    request,
    to_json(tools)::varchar as tools,
    to_json(links)::varchar as links,
    has_links,
    split
from learning_row r
where is_plannable and split <> 'test' and not exists (
    select 1 from learning_row h
    where h.split = 'test' and h.source = r.source and h.request = r.request
)
order by trajectory_id
