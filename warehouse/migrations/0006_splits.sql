-- How rows are divided: which of them lie on one side together, and in a home that is divided in
-- another way, by what.

-- Rows that the split keeps on one side have the same value here; '' in states that were mined before.
alter table learning_interval add column split_group varchar default '';

-- One row in a warehouse that was derived from another one to be divided in another way, else none.
create table derived_from (
    split           varchar not null,   -- own | by-sequence | by-conversation | by-time
    content         varchar not null    -- hash of what the other warehouse told
);

-- Where time divides a source; fixed when it is first divided, so that later rows move none.
create table split_cut (
    source          varchar not null,
    validation_from timestamp not null, -- UTC: earlier rows are for training
    test_from       timestamp not null  -- UTC
);
