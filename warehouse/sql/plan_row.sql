-- The rows of ``planned`` with their split, and a digest of what training sees of them.
-- grain: trajectory_id.
-- parameters: $test and $validation (shares, out of 1), $split (what divides).
-- split: what a suite has frozen, by id or by the very request, is test for ever, whatever settings
-- or deliveries change. Else the source's own test stays test, and everything else is drawn. Where
-- nothing but the named split decides, a row with a frozen request of another side is on none; where
-- time does, requests come again in earnest, and a row has the side of its own time.
create or replace temp table plan_row as
with
frozen as (
    select distinct s.source, r.trajectory_id, r.request
    from suite_row r
    join suite s using (name, version)
),
divided as (
    select
        *,
        case
            when own_split = 'test' then 'test'
            when trajectory_id in (select trajectory_id from frozen) then 'test'
            when own_split is null and draw < $test then 'test'
            when $split <> 'by-time' and (source, request) in (select (source, request) from frozen)
            then if($split = 'default', 'test', 'none')
            when own_split = 'validation' then 'validation'
            when own_split is null and draw < $test + $validation then 'validation'
            when own_split is not null and $split <> 'by-time' and draw < $validation
            then 'validation'
            else 'train'
        end as split
    from planned
)
select
    trajectory_id,
    source,
    request,
    tools,
    links,
    has_links,
    own_split,
    split_group,
    draw,
    split,
    sha256(concat_ws(
        chr(31), trajectory_id, source, request, to_json(tools), to_json(links), has_links,
        coalesce(own_split, ''), split_group, split
    )) as digest
from divided
