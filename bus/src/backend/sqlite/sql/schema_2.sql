-- Version 2. Who reads an endpoint: when a host has last said so (by the wall clock), and how long the endpoint keeps what
-- waits there. A row outlives its endpoint, so that no other one gets its number.
CREATE TABLE bus_reader (
    endpoint  INTEGER PRIMARY KEY,
    read_at   INTEGER,
    retention INTEGER
) STRICT;
