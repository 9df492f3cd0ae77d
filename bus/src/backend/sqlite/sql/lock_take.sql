INSERT INTO bus_lock (id, owner, fence, lease, renewed_at, boot) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (id) DO UPDATE SET
    owner = excluded.owner, fence = excluded.fence, lease = excluded.lease,
    renewed_at = excluded.renewed_at, boot = excluded.boot, ended = NULL, reason = NULL
