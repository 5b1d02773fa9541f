-- One row per trajectory that shows a plan: its request, tools, links and split.
-- grain: trajectory_id.
-- parameters: $seed (split seed), $test and $validation (shares, out of 1).
-- Kept are calls that did not fail; the same call again at once (tool and arguments) is one step.
-- Dropped are predicted trajectories and those without a kept call. is_plannable is false without
-- a request, and where a tool is outside the catalogue or deprecated: no planner could offer it.
-- split: what a suite has frozen, by id or by the very request, is test for ever, whatever settings
-- or deliveries change. Else the source's own test stays test, and everything else is drawn by
-- sha256(seed, tools), so that equal sequences lie on one side and a later night never moves a row.
create or replace temp table learning_row as
with
kept as (
    select
        trajectory_id,
        position,
        turn,
        namespace || '/' || name as key,
        arguments_raw
    from resolved_call
    where status in ('ok', 'unrecorded') and links_kind <> 'predicted'
),
marked as (
    select
        *,
        case
            when arguments_raw is not null
                and lag(key) over w = key
                and lag(arguments_raw) over w = arguments_raw
            then 0
            else 1
        end as is_step
    from kept
    window w as (partition by trajectory_id order by position)
),
numbered as (
    select
        *,
        sum(is_step) over (partition by trajectory_id order by position)::integer - 1 as step
    from marked
),
plan as (
    select
        trajectory_id,
        list(key order by step) filter (where is_step = 1) as tools,
        bool_and(key in (select key from node where status = 'active')) as is_plannable
    from numbered
    group by trajectory_id
),
gold as (
    select distinct
        l.trajectory_id,
        s.step as source_step,
        t.step as target_step
    from link l
    join trajectory j on j.trajectory_id = l.trajectory_id and j.links_kind = l.kind
    join numbered s on s.trajectory_id = l.trajectory_id and s.position = l.source_position
    join numbered t on t.trajectory_id = l.trajectory_id and t.position = l.target_position
    where l.kind in ('gold', 'dataflow') and s.step <> t.step
),
links as (
    select
        trajectory_id,
        list([source_step, target_step] order by source_step, target_step) as links
    from gold
    group by trajectory_id
),
frozen as (
    select distinct s.source, r.trajectory_id, r.request
    from suite_row r
    join suite s using (name, version)
),
drawn as (
    select
        *,
        ('0x' || substr(sha256($seed::varchar || chr(10) || array_to_string(tools, chr(10))), 1, 8))::bigint
            / 4294967296.0 as draw
    from plan
)
select
    t.trajectory_id,
    t.source,
    t.request,
    d.tools,
    coalesce(l.links, []) as links,
    t.links_kind in ('gold', 'dataflow') as has_links,
    t.split is not null as has_own_split,
    d.is_plannable and t.request <> '' as is_plannable,
    case
        when t.split = 'test' then 'test'
        when t.trajectory_id in (select trajectory_id from frozen)
            or (t.source, t.request) in (select (source, request) from frozen) then 'test'
        when t.split is null and d.draw < $test then 'test'
        when t.split = 'validation' then 'validation'
        when d.draw >= $test and d.draw < $test + $validation then 'validation'
        else 'train'
    end as split
from drawn d
join trajectory t using (trajectory_id)
left join links l using (trajectory_id)
order by t.trajectory_id
