-- The rows of ``learning_row`` that training may see.
-- grain: id.
-- parameters: $is_by_time (then a request of a test row may have come before).
-- group: rows of one group are on one side together; '' where a state of before does not tell.
select
    trajectory_id as id,
    source,
    request,
    to_json(tools)::varchar as tools,
    to_json(links)::varchar as links,
    has_links,
    split,
    split_group as "group"
from learning_row r
where is_plannable and split in ('train', 'validation') and ($is_by_time or not exists (
    select 1 from learning_row h
    where h.split = 'test' and h.source = r.source and h.request = r.request
))
order by trajectory_id
