-- One row per trajectory in scope that shows a plan: its tools, links and place in the draw.
-- grain: trajectory_id.
-- parameters: $seed, $split (what divides), $after (links up to this number are not looked at).
-- needs: scope, told_call.
-- Kept are calls that did not fail; the same call again at once (tool and arguments) is one step.
-- split_group: what rows have in common that lie on one side together. By default that is the request
--   where the source ships a split, which knows requests only, else the sequence of tools.
-- draw: by sha256(seed, what they have in common), so that a later night moves none.
create or replace temp table planned as
with
marked as (
    select
        *,
        case
            when arguments is not null and lag(tool) over w = tool and lag(arguments) over w = arguments
            then 0
            else 1
        end as is_step
    from told_call
    where outcome <> 'failed'
    window w as (partition by t order by position)
),
plan as (
    select t, list(k.key order by position) as tools
    from marked
    join mined_tool k using (tool)
    where is_step = 1
    group by t
),
numbered as (
    select
        t,
        position,
        sum(is_step) over (partition by t order by position)::integer - 1 as step
    from marked
    where t in (select t from scope where has_links)
),
gold as (
    select distinct l.number as t, a.step as source_step, b.step as target_step
    from link l
    join trajectory s on s.number = l.number and s.links_kind = l.kind
    join numbered a on a.t = l.number and a.position = l.source_position
    join numbered b on b.t = l.number and b.position = l.target_position
    where l.number > $after and l.kind in ('gold', 'dataflow') and a.step <> b.step
),
links as (
    select t, list([source_step, target_step] order by source_step, target_step) as links
    from gold
    group by t
),
common as (
    select
        p.t,
        p.tools,
        case
            when $split = 'by-sequence' or ($split = 'default' and j.split is null)
            then array_to_string(p.tools, chr(10))
            when $split = 'by-conversation' and j.conversation is not null
            then 'conversation ' || to_json([j.source, j.conversation])
            when $split = 'by-time' or trim(j.request) = ''
            then 'row ' || j.trajectory_id
            else 'request ' || lower(trim(regexp_replace(j.request, '\s+', ' ', 'g')))
        end as shared
    from plan p
    join trajectory j on j.number = p.t
)
select
    j.trajectory_id,
    j.source,
    j.request,
    c.tools,
    coalesce(l.links, []) as links,
    s.has_links,
    j.split as own_split,
    substr(sha256(c.shared), 1, 16) as split_group,
    ('0x' || substr(sha256($seed::varchar || chr(10) || c.shared), 1, 8))::bigint
        / 4294967296.0 as draw
from common c
join scope s using (t)
join trajectory j on j.number = c.t
left join links l using (t)
