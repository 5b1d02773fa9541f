-- Traces of many formats: conversations, nested calls, attempts, exact clocks, events that come in
-- pieces, and what was asked to be forgotten.

alter table trajectory add column conversation varchar;      -- session or thread it is part of
alter table trajectory add column assembled_from varchar;    -- the fragments it was made of, else null
alter table trajectory add column flags varchar;             -- JSON list: what is odd about it
alter table trajectory add column orphans varchar;           -- JSON list: results without a call

alter table call add column parent integer;                  -- position of the call it ran inside
alter table call add column attempts integer;                -- how often it was executed
alter table call add column uid varchar;                     -- equal uids in a source are one execution
alter table call add column flags varchar;                   -- JSON list: what is odd about it
alter table call alter column started_at type timestamp_ns;
alter table call alter column ended_at type timestamp_ns;
update call set attempts = 1;

-- Arguments that came as values are kept without blanks between their parts.
update call set arguments_raw = json(arguments_raw)::varchar
where arguments_state in ('object', 'empty') and json_valid(arguments_raw)
    and trajectory_id in (select trajectory_id from trajectory where format <> 'openai');

-- What was delivered of conversations that are told in pieces: one row per conversation once its
-- trajectories are made, more while they are pending.
create table fragment (
    source          varchar not null,
    format          varchar not null,
    conversation    varchar not null,
    num_events      integer not null,
    size            bigint not null,    -- characters of events
    events          varchar not null    -- JSON list of distinct events, sorted by their text
);

-- Other names of a conversation, such as the id of the response it goes on from: conversations with
-- a name in common are one.
create table fragment_alias (
    source          varchar not null,
    format          varchar not null,
    conversation    varchar not null,
    alias           varchar not null
);

-- Conversations whose stored events changed after their trajectories were made.
create table pending (
    source          varchar not null,
    format          varchar not null,
    conversation    varchar not null
);

-- How far an interrupted reading of a file came.
create table ingest_progress (
    file_sha256     varchar not null,
    source          varchar not null,
    reader_version  integer not null,
    at_byte         bigint not null,    -- of the unpacked content
    at_line         bigint not null,
    report          varchar not null    -- JSON: what was found up to here
);

-- What a user asked to forget: it does not come back with a later delivery.
create table forgotten (
    source          varchar not null,
    key             varchar not null,   -- sha256 of source and native id, or of the content
    forgotten_at    timestamp not null
);
