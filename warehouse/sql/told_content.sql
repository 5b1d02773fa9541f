-- One row per table of what was told, with a sum over its rows; calls and links go with their
-- trajectory.
-- grain: name.
select 'trajectory' as name, sum(hash(t)::hugeint)::varchar as content from trajectory t
union all
select 'tool_version', sum(hash(t)::hugeint)::varchar from tool_version t
union all
select 'catalogue_delivery', sum(hash(t)::hugeint)::varchar from catalogue_delivery t
union all
select 'tool_alias', sum(hash(t)::hugeint)::varchar from tool_alias t
union all
select 'tool_mark', sum(hash(t)::hugeint)::varchar from tool_mark t
union all
select 'declared_edge', sum(hash(t)::hugeint)::varchar from declared_edge t
order by name
