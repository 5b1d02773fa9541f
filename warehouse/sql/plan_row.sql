-- The rows of ``divided`` as they are kept, each with a digest of what training sees of it.
create or replace temp table plan_row as
select
    trajectory_id,
    source,
    request,
    tools,
    links,
    has_links,
    own_split,
    draw,
    split,
    sha256(concat_ws(
        chr(31), trajectory_id, source, request, to_json(tools), to_json(links), has_links,
        coalesce(own_split, ''), split
    )) as digest
from divided
