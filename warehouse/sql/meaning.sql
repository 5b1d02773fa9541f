-- What each name in calls means: the tool of a catalogue, directly, behind a client prefix or by a
-- former name; else itself in the source's own namespace. And whether its source records results: one
-- that carries none at all has unrecorded calls, not unanswered ones.
-- grain: (called_namespace, called).
-- parameters: $after (what is recorded up to this number is known from mined_name).
create or replace temp table meaning as
with
recording as (
    select distinct namespace from mined_name where is_recording and $after >= 0
    union
    select distinct namespace from call where status not in ('no_result', 'invalid') and number > $after
),
meant as (
    select call_namespace, call_name, namespace, name from client_name where num_fitting = 1
    union all
    select namespace, name, target_namespace, target_name from tool_rename
)
select
    c.namespace as called_namespace,
    c.name as called,
    coalesce(m.namespace, c.namespace) as namespace,
    coalesce(m.name, c.name) as name,
    c.namespace in (select namespace from recording) as is_recording
from (select distinct namespace, name from called_name) c
left join meant m on m.call_namespace = c.namespace and m.call_name = c.name
