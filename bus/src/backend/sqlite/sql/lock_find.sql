SELECT id, owner, fence, lease, renewed_at, boot, ended, reason, note FROM bus_lock WHERE id = ?1
