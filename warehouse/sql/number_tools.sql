-- A number for every tool of the view ``unnumbered`` (namespace, name) that has none yet.
insert into mined_tool
select
    (select coalesce(max(tool), 0) from mined_tool) + row_number() over (order by key),
    key,
    namespace,
    name
from (select distinct namespace || '/' || name as key, namespace, name from unnumbered)
where key not in (select key from mined_tool)
