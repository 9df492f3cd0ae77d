-- Stores a message within the user's own transaction: $8 is when it is due, in so long ($9 = 1) or at that time ($9 = 2).
-- With $11 = 1 who waits is notified when that commits.
SELECT {schema}.put(
    $1::text, $2::bigint = 1, $3::text::uuid, $4::text, nullif($5::text, ''), $6::bigint, nullif($7::bigint, -1),
    CASE $9::bigint WHEN 1 THEN {schema}.clock_us() + $8::bigint WHEN 2 THEN $8::bigint END, $10::bytea,
    $11::bigint = 1)
