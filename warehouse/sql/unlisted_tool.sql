-- One row per tool name that traces call and the catalogue of its namespace lacks.
-- grain: (namespace, name). nearest: up to three listed names by Jaro-Winkler similarity, of the
-- whole names or of what follows their last dot, slash or colon.
with
catalogued as (
    select namespace, name, regexp_extract(name, '[^./:]*$') as last_part
    from current_tool
    where status <> 'removed'
),
called as (
    select
        namespace,
        name,
        count(*) as num_calls,
        count(*) filter (where status not in ('ok', 'unrecorded')) as num_failed
    from resolved_call
    group by namespace, name
),
unlisted as (
    select c.*, regexp_extract(c.name, '[^./:]*$') as last_part
    from called c
    where c.namespace in (select namespace from tool_version)
        and (c.namespace, c.name) not in (select (namespace, name) from catalogued)
),
ranked as (
    select
        u.namespace,
        u.name,
        k.name as near,
        row_number() over (
            partition by u.namespace, u.name
            order by
                greatest(
                    jaro_winkler_similarity(lower(u.name), lower(k.name)),
                    jaro_winkler_similarity(lower(u.last_part), lower(k.last_part))
                ) desc,
                k.name
        ) as place
    from unlisted u
    join catalogued k using (namespace)
),
nearest as (
    select namespace, name, list(near order by place) as near
    from ranked
    where place <= 3
    group by namespace, name
)
select u.namespace, u.name, u.num_calls, u.num_failed, coalesce(n.near, []) as nearest
from unlisted u
left join nearest n using (namespace, name)
order by u.num_calls desc, u.namespace, u.name
