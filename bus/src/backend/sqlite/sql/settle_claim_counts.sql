-- Ends a claim and says what it had counted.
DELETE FROM bus_claim WHERE id = ?1 AND token = ?2
RETURNING deliveries, failures, crashes, alone, crashed_alone
