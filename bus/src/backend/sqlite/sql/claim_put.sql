INSERT OR REPLACE INTO bus_claim
    (id, token, until, boot, fence, deliveries, failures, crashes, crashed_alone)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
