SELECT id, owner, fence, lease, renewed_at, boot, ended, reason, note
FROM bus_lock WHERE substr(id, 1, length(?1)) = ?1 ORDER BY id
