-- Where time divides the sources that it has not divided before.
-- grain: source.
-- parameters: $test and $validation (shares of the timed trajectories, out of 1).
-- A cut lies where the shares come nearest; trajectories of one time are on one side.
insert into split_cut
with
timed as (
    select source, started_at, min(started_at) over (partition by source) as first_at
    from trajectory
    where started_at is not null and links_kind <> 'predicted' and num_calls > 0
        and source not in (select source from split_cut)
),
placed as (
    select
        source,
        started_at,
        sum(count(*)) over (partition by source order by started_at desc)
            / sum(count(*)) over (partition by source) as share_since
    from timed
    group by source, started_at, first_at
    qualify started_at > first_at
),
tested as (
    select
        source,
        arg_min(started_at, (abs(share_since - $test), started_at)) as test_from,
        arg_min(share_since, (abs(share_since - $test), started_at)) as share_tested
    from placed
    group by source
)
select
    source,
    arg_min(started_at, (abs(share_since - share_tested - $validation), started_at)),
    test_from
from placed
join tested using (source)
where started_at <= test_from
group by source, test_from
