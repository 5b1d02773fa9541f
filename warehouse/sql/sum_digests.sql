-- What the digests of the learning rows add up to more than before, in two parts of 64 bits.
with
change as (
    select digest, 1 as sign from opening
    union all
    select digest, -1 from closing
)
select
    coalesce(sum(sign * ('0x' || substr(digest, 1, 16))::ubigint::hugeint), 0),
    coalesce(sum(sign * ('0x' || substr(digest, 17, 16))::ubigint::hugeint), 0)
from change
